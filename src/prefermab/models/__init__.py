"""Trained models: what they do, what they check, and their folders."""
