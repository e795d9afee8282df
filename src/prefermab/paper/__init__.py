"""The paper's tables and figures: published figures as data, and the code that computes ours."""
