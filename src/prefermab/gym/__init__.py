"""Gymnasium environments for every domain (extra `gym`); importing this module registers them.

An episode is a trial: `reset(seed=s)` begins trial 0 of `pm.evaluate(..., seed=s)`, with the same
arms, starting states, opt-ins and random draws. Every later `reset()` begins the next trial. World
i of a vector environment equals a single environment that is reset with seed s + i.

>>> import gymnasium
>>> import prefermab.gym
>>> env = gymnasium.make("prefermab/Armman-v0", n_arms=5, budget=2)
>>> seen, info = env.reset(seed=0)
>>> seen, reward, terminated, truncated, info = env.step([1, 1, 1, 0, 0])
>>> info["executed"].tolist(), info["projected"], info["spent"]
([1, 1, 0, 0, 0], True, 2.0)
"""

from prefermab.errors import optional

optional("gymnasium", "gym", "prefermab.gym")
from prefermab.gym.environments import (  # noqa: E402 - after the sentence on what is missing
    AllocationEnv,
    AllocationVectorEnv,
    register,
)

__all__ = ["AllocationEnv", "AllocationVectorEnv", "register"]

register()
