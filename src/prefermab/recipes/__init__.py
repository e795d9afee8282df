"""Recipes: ways to train a model, one file each, from hyperparameters to the policy."""

from prefermab.recipes.base import BY_NAME, METRICS, Metrics, Recipe, Tuned, Tuning
from prefermab.recipes.exact import Exact
from prefermab.recipes.literal import PaperLiteral
from prefermab.recipes.paper import Paper
from prefermab.recipes.sweep import Sweep

__all__ = [
    "BY_NAME", "METRICS", "Exact", "Metrics", "Paper", "PaperLiteral", "Recipe", "Sweep", "Tuned",
    "Tuning",
]  # fmt: skip
