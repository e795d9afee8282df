"""Used by all layers: errors, files, worker processes, report pages, pictures, intervals."""
