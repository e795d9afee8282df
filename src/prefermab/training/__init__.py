"""Pretraining by any recipe, checkpoints, fine-tuning, and the paper's topline."""
