"""Logs in which most states are empty, because somebody has to look to see one.

In the order in which such a log goes through them:

- `histories`: when states were seen, and everybody's rounds between them
- `likelihood`: how likely transition probabilities make what was seen, over all hidden rounds
- `hidden`: the fit, with its posterior
- `visits`: how well states are predicted that were seen later, and what that says about the log
- `page`: the first page and the report
"""
