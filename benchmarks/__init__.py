"""Repeatable measurements of speed, each compared with the limit of the machine."""
