"""Policies: everything that can decide, behind one interface.

>>> import prefermab as pm
>>> frame = pm.evaluate(pm.domains.Synthetic(), {"none": pm.policies.NoAction()},
...                     n_arms=21, budget=7, trials=50)
"""

from prefermab.policies.base import Policy, Problem, as_policy
from prefermab.policies.heuristics import Lottery, NoAction, Random, RoundRobin
from prefermab.policies.informed import Lagrangian, Myopic, Whittle

BY_NAME: dict[str, type[Policy]] = {
    "none": NoAction,
    "random": Random,
    "lottery": Lottery,
    "round-robin": RoundRobin,
    "myopic": Myopic,
    "whittle": Whittle,
    "lagrangian": Lagrangian,
}

__all__ = [
    "BY_NAME",
    "Lagrangian",
    "Lottery",
    "Myopic",
    "NoAction",
    "Policy",
    "Problem",
    "Random",
    "RoundRobin",
    "Whittle",
    "as_policy",
]
