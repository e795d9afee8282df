"""From a log of what was done and what came of it to arms that can be learned from."""
