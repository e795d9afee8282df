"""The paper's tables and figures: published values as data, and the code that computes ours."""
