"""Web pages, one file each, with their templates and static files."""
