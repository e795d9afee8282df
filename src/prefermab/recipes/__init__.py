"""Ways to train: one file each."""
