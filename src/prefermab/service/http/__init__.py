"""What all requests share: guards, error answers, tables in bodies, rendered pages."""
