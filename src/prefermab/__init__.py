"""prefermab: give a limited resource, round after round, to some of many.

>>> import prefermab as pm
>>> frame = pm.evaluate(pm.domains.Armman(), {"whittle": pm.policies.Whittle()},
...                     n_arms=25, budget=7, trials=100)

Names are loaded when first used, so that `prefermab --help` need not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefermab import budget, domains, opt_in, oracles, policies, recipes
    from prefermab.arms import Observation
    from prefermab.errors import InputError, PrefermabError
    from prefermab.evaluation import evaluate
    from prefermab.features import FeatureMap
    from prefermab.finetuning import finetune
    from prefermab.model import Model
    from prefermab.programme import evidence
    from prefermab.programme import exchange as tables
    from prefermab.programme.bulk.driver import plan_folder
    from prefermab.programme.logs.domain import from_log
    from prefermab.programme.logs.learn import LearnResult, learn
    from prefermab.programme.logs.warnings import LogWarning
    from prefermab.programme.planning.plan import Plan
    from prefermab.programme.planning.rules import Rules
    from prefermab.programme.simulation import simulate
    from prefermab.programme.store import Programme
    from prefermab.storage import load
    from prefermab.topline import ddlpo
    from prefermab.training import TrainingError, pretrain, pretrain_seeds

__version__ = "0.2.0"

_MODULES = {
    "budget": "budget",
    "domains": "domains",
    "evidence": "programme.evidence",
    "opt_in": "opt_in",
    "oracles": "oracles",
    "policies": "policies",
    "recipes": "recipes",
    "tables": "programme.exchange",
}
_NAMES = {
    "FeatureMap": "features",
    "InputError": "errors",
    "LearnResult": "programme.logs.learn",
    "LogWarning": "programme.logs.warnings",
    "Model": "model",
    "Observation": "arms",
    "Plan": "programme.planning.plan",
    "PrefermabError": "errors",
    "Programme": "programme.store",
    "Rules": "programme.planning.rules",
    "TrainingError": "training",
    "ddlpo": "topline",
    "evaluate": "evaluation",
    "finetune": "finetuning",
    "from_log": "programme.logs.domain",
    "learn": "programme.logs.learn",
    "load": "storage",
    "plan_folder": "programme.bulk.driver",
    "pretrain": "training",
    "pretrain_seeds": "training",
    "simulate": "programme.simulation",
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
