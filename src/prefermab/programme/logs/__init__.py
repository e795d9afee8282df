"""Logs of past rounds: read, fitted, learned from and judged.

In the order in which a log goes through them:

- `learn`: `prefermab.learn`, the whole pipeline, and its result
- `reading`: the log, checked (with `rows`, `labels`, `features`)
- `diagnostics`, `warnings`: rows that do not mean what they seem to
- `fitting`, `shrinkage`: transition probabilities and their posterior
- `domain`: arms drawn from the posterior, to train on (`prefermab.from_log`)
- `gain`: what a model gains, measured honestly; start here to see how (with `population`)
- `allocation`, `verdict`: who was acted on; the placebo; what can be concluded
- `effects`, `holdout`: what actions change and for whom; how well the fit predicts
- `summary`, `report`: the first page, and the report (with `report_parts`)
- `unseen`: all of that where most states are empty
- `simulated`: made-up logs, for tests, studies and the tutorial
"""
