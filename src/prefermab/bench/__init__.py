"""Repeatable measurements of speed, each beside what the machine can do."""
