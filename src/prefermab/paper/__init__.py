"""Experiments: what was measured, and the code that measures it again."""
