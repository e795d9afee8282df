"""From events, such as visits, calls and forms, to a log with a row for each person and round."""
