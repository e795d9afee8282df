"""What a log proves: whether a model gains anything, how sure that is, and for whom."""
