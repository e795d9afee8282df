"""Arms and one round of them: observations, features, exact amounts, the budget, opt-ins."""
