"""Used by all layers: files, worker processes, report pages, pictures, intervals."""
