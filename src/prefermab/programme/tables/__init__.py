"""Tables from files, databases and frames: rows, columns and cells; pseudonyms."""
