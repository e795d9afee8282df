"""Neural networks: what actions are worth, the price, and the last rounds of a programme."""
