"""Logs of past rounds: reading them, fitting them, learning models from them, and estimating gains.

In the order in which they are used:

- `learn`: `prefermab.learn`, the whole pipeline, and its result
- `reading`: reads and checks a log (with `rows`, `labels`, `features`)
- `diagnostics`, `warnings`: find rows that do not mean what they seem to mean
- `fitting`, `shrinkage`: transition probabilities and their posterior
- `domain`: arms drawn from the posterior, to train on (`prefermab.from_log`)
- `gain`: the doubly robust estimate of a model's gain; its docstring describes the whole method
- `population`, `scores`: the values of decision rules, and the scores of single people, for `gain`
- `allocation`: who was acted on, and tests for unmeasured confounding
- `verdict`: the gain, the placebo test and the warnings together
- `effects`, `holdout`: effects of actions, also by group; prediction errors on held-out data
- `summary`, `report`: the first page, and the report (with `report_parts`)
- `unseen`: logs in which most states are empty
- `simulated`: simulated logs, for tests, studies and the tutorial
"""
