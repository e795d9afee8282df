"""Oracles, which know the dynamics: value iteration, Whittle indices, and the Lagrangian bound.

>>> import prefermab as pm
>>> pm.oracles.whittle_indices([[[[0.9, 0.1], [0.2, 0.8]]] * 2], [0, 1]).round(2)
array([[0.63, 0.63]])
"""

from prefermab.oracles.dynamic_programming import backward_induction, value_iteration
from prefermab.oracles.lagrangian import Bound, lagrangian_bound
from prefermab.oracles.whittle import is_indexable, whittle_indices

__all__ = [
    "Bound",
    "backward_induction",
    "is_indexable",
    "lagrangian_bound",
    "value_iteration",
    "whittle_indices",
]
