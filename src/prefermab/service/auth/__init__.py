"""Users, sign-in and rights; the tables of the service and its settings."""
