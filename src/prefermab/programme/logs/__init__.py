"""Logs of past rounds: reading, checking and fitting them.

In the order in which they are used:

- `reading`: reads and checks a log (with `rows`, `labels`, `features`)
- `diagnostics`, `log_warnings`: find rows that do not mean what they seem to mean
- `fitting`, `shrinkage`: transition probabilities and their posterior
- `histories`, `likelihood`, `hidden`: the same for logs in which most states are empty, because a
  state is only known when somebody looks
- `domain`: arms drawn from the posterior, to train on (`prefermab.from_log`)
- `population`: the values of decision rules for the people of a log
- `allocation`: who was acted on, and tests for unmeasured confounding
- `simulated`: simulated logs, for tests, studies and the tutorial
"""
