"""Measurements behind docs/results: `python -m studies` from the root of the repository."""
