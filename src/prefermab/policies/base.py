"""The interface of policies: everything that can decide.

A policy has three methods, of which only `act` is required. `prepare` gets the problem of a trial
once, true dynamics included, and returns the policy for it; a policy that must not know the
dynamics does not define it. `memory` is what a policy carries from round to round. `act` turns
what is seen in a round into an action for each arm.
"""

import abc
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PyTree

from prefermab.arms.observation import Actions, Arms, Costs, Key, Observation, States
from prefermab.domains.base import Domain
from prefermab.errors import InputError
from prefermab.oracles.dynamic_programming import Rewards, Sparse, Transitions

Memory = PyTree


class Problem(eqx.Module):
    """One trial with its true dynamics: everything except the random outcomes to come.

    `prices` are those of the Lagrangian relaxation, one for each round, where they were computed.
    """

    domain: Domain
    arms: Arms
    start: States
    opt_in: Bool[Array, "round arm"]
    budget: Float[Array, ""]
    prices: Float[Array, "round"] | None = None

    def transitions(self) -> Transitions:
        """Probabilities (arm, cell, action, next cell); a `Sparse` table where only few next cells
        are possible."""
        chances = jax.vmap(self.domain.successors)(self.arms)
        targets = self.domain.targets
        return chances if targets is None else Sparse(chances, targets)

    def rewards(self) -> Rewards:
        """Rewards (arm, cell)."""
        return jax.vmap(self.domain.rewards)(self.arms)

    def costs(self) -> Costs:
        """Costs (arm, action)."""
        return jax.vmap(self.domain.costs)(self.arms)


class Policy(eqx.Module):
    """Base of all policies; a subclass gives `act`.

    Arguments of the methods: `problem` is a trial with its true dynamics, `n_arms` the number of
    arms, `seen` what is observed in a round, `memory` what the policy remembers, and `key` a
    random key.

    `pm.budget.greedy` turns scores into actions: the highest score first, while the budget lasts.
    It never reads column 0, the passive action, so everything affordable is bought, even at no
    gain; a score of -inf forbids an action.

    >>> import jax.numpy as jnp
    >>> import prefermab as pm
    >>> class WorstFirst(pm.policies.Policy):
    ...     def act(self, seen, memory, key):
    ...         passive = jnp.zeros(seen.n_arms)  # never read
    ...         scores = jnp.stack([passive, -seen.state], axis=1)
    ...         return pm.budget.greedy(scores, seen.costs, seen.budget, seen.opt_in), memory
    >>> frame = pm.evaluate(pm.domains.Synthetic(), {"worst first": WorstFirst()},
    ...                     n_arms=21, budget=7, trials=50)
    """

    def prepare(self, problem: Problem) -> "Policy":
        """The policy for a trial; by default the policy itself, which does not use the problem."""
        del problem
        return self

    def memory(self, n_arms: int) -> Memory:
        """The memory before the first round; by default none."""
        del n_arms
        return None

    @abc.abstractmethod
    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        """An action for each arm, within the budget, and the memory for the next round."""


class Function(Policy):
    """A function of the observation (and of a random key, if it takes two arguments)."""

    function: Callable[..., Any]
    takes_key: bool

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Any, Memory]:
        actions = self.function(seen, key) if self.takes_key else self.function(seen)
        return actions, memory


def as_policies(
    given: Any, domain: Domain | None = None, *, at_least: int = 1
) -> dict[str, Policy]:
    """Policies by name, each made by `as_policy`."""
    if not isinstance(given, Mapping):
        raise InputError(
            'policies must be a dictionary from names to policies, such as {"mine": policy}, '
            f"not {type(given).__name__}."
        )
    if len(given) < at_least:
        raise InputError("policies must name at least one policy.")
    return {name: as_policy(policy, name, domain) for name, policy in given.items()}


def as_policy(given: Any, name: str, domain: Domain | None = None) -> Policy:
    """The policy for what a user gave: a policy, a model that fits the domain, or a function of the
    observation (and a random key).

    Args:
        given: A policy, a model, or a function.
        name: Its name, for error messages.
        domain: The domain that a model must fit.

    Returns:
        A policy.
    """
    if domain is not None and hasattr(given, "check_fits"):
        given.check_fits(domain)
    if domain is not None and hasattr(given, "warn_if_unlike"):
        given.warn_if_unlike(domain, name)
    given = getattr(given, "policy", given)
    if isinstance(given, Policy):
        return given
    if isinstance(given, type) and issubclass(given, Policy):
        raise InputError(f"the policy '{name}' is a class: write {given.__name__}().")
    if not callable(given):
        raise InputError(
            f"the policy '{name}' must be a Policy or a function of what is seen, "
            f"not {type(given).__name__}."
        )
    takes_key = len(inspect.signature(given).parameters) > 1
    return Function(given, takes_key)
