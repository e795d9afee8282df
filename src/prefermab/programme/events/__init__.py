"""Makes logs, with a row for each person and round, from events: visits, calls, forms."""
