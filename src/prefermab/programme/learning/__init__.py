"""From a log to a model and to what the log shows about it.

- `learn`: `prefermab.learn`, the whole pipeline, and its result
- `gain`: the doubly robust estimate of a model's gain; its docstring describes the whole method
- `scores`: the scores of single people, for `gain`
- `verdict`: the gain, the placebo test and the warnings together
- `effects`, `holdout`: effects of actions, also by group; prediction errors on held-out data
- `visits`: checks of the fit to a log in which most states are empty
- `summary`, `report`: the first page, and the report (with `report_parts`)
- `unseen_report`: both for a log in which most states are empty
"""
