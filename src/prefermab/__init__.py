"""prefermab: give a limited resource, round after round, to some of many.

>>> import prefermab as pm
>>> frame = pm.evaluate(pm.domains.Armman(), {"whittle": pm.policies.Whittle()},
...                     n_arms=25, budget=7, trials=100)

Names are loaded when first used, so that `prefermab --help` need not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefermab import budget, domains, opt_in, oracles, policies, recipes, tables
    from prefermab.arms.features import FeatureMap
    from prefermab.arms.observation import Observation
    from prefermab.errors import InputError, PrefermabError
    from prefermab.evaluation.compare import evaluate
    from prefermab.evaluation.simulation import simulate
    from prefermab.models.loading import load
    from prefermab.models.model import Model
    from prefermab.programme import evidence
    from prefermab.programme.bulk.driver import plan_folder
    from prefermab.programme.learning.learn import LearnResult, learn
    from prefermab.programme.logs.domain import from_log
    from prefermab.programme.logs.log_warnings import LogWarning
    from prefermab.programme.planning.plan import Plan
    from prefermab.programme.planning.rules import Rules
    from prefermab.programme.store import Programme
    from prefermab.training.finetuning import finetune
    from prefermab.training.pretraining import TrainingError, pretrain, pretrain_seeds
    from prefermab.training.topline import ddlpo

__version__ = "0.2.0"

_MODULES = {
    "budget": "budget",
    "domains": "domains",
    "evidence": "programme.evidence",
    "opt_in": "opt_in",
    "oracles": "oracles",
    "policies": "policies",
    "recipes": "recipes",
    "tables": "tables",
}
_NAMES = {
    "FeatureMap": "arms.features",
    "InputError": "errors",
    "LearnResult": "programme.learning.learn",
    "LogWarning": "programme.logs.log_warnings",
    "Model": "models.model",
    "Observation": "arms.observation",
    "Plan": "programme.planning.plan",
    "PrefermabError": "errors",
    "Programme": "programme.store",
    "Rules": "programme.planning.rules",
    "TrainingError": "training.pretraining",
    "ddlpo": "training.topline",
    "evaluate": "evaluation.compare",
    "finetune": "training.finetuning",
    "from_log": "programme.logs.domain",
    "learn": "programme.learning.learn",
    "load": "models.loading",
    "plan_folder": "programme.bulk.driver",
    "pretrain": "training.pretraining",
    "pretrain_seeds": "training.pretraining",
    "simulate": "evaluation.simulation",
}

__all__ = [
    "FeatureMap",
    "InputError",
    "LearnResult",
    "LogWarning",
    "Model",
    "Observation",
    "Plan",
    "PrefermabError",
    "Programme",
    "Rules",
    "TrainingError",
    "budget",
    "ddlpo",
    "domains",
    "evaluate",
    "evidence",
    "finetune",
    "from_log",
    "learn",
    "load",
    "opt_in",
    "oracles",
    "plan_folder",
    "policies",
    "pretrain",
    "pretrain_seeds",
    "recipes",
    "simulate",
    "tables",
]


if not TYPE_CHECKING:  # a type checker is to see a name that is misspelt

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"prefermab.{_MODULES[name]}")
        if name in _NAMES:
            return getattr(importlib.import_module(f"prefermab.{_NAMES[name]}"), name)
        raise AttributeError(f"module 'prefermab' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
