"""The tasks of the report: trainings, rewards of policies, bounds, and the best price (Prop. 3)."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab import domains, policies
from prefermab.arms.observation import Arm, Arms, Key
from prefermab.arms.opt_in import opted_in_count
from prefermab.domains import Domain
from prefermab.evaluation.compare import (
    trial_batches,
    trial_bounds,
    trial_keys,
    trial_rewards,
)
from prefermab.models.loading import load
from prefermab.models.model import Model
from prefermab.oracles import value_iteration
from prefermab.paper.runner import EVALUATION_SEED, PAPER_RECIPES, Scale, Store, Task, TaskResult
from prefermab.paper.tables import Setting
from prefermab.policies import Policy
from prefermab.recipes import Paper
from prefermab.training.pretraining import pretrain_seeds

POOL_SEED = 2000
LARGEST_POOL = 567


class ArmPool(domains.Tabular):
    """Draws only from the first `size` of the given arms. Each is drawn once before any is drawn
    again. The other arms fill the table, so that pools of every size share compiled code."""

    size: Int[Array, ""]

    def __init__(self, size: int, **given: Any):
        super().__init__(**given)
        self.size = jnp.asarray(size)

    def draw(self, key: Key) -> Arm:
        return jax.random.randint(key, (), 0, self.size)

    def draw_arms(self, key: Key, n_arms: int) -> Arms:
        key_order, key_more = jax.random.split(key)
        rows = jnp.arange(self.table.shape[0])
        luck = jax.random.uniform(key_order, rows.shape)
        order = jnp.argsort(jnp.where(rows < self.size, luck, 2.0))
        place = jnp.arange(n_arms)
        once = order[jnp.minimum(place, rows.size - 1)]
        again = jax.random.randint(key_more, (n_arms,), 0, self.size)
        return jnp.where(place < self.size, once, again)


@dataclasses.dataclass(frozen=True)
class Train(Task):
    """Trains one model for each seed with one recipe."""

    recipe: str
    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, recipe: str, setting: Setting, scale: Scale) -> "Train":
        """The training for a setting; fields that do not affect training get their defaults."""
        scale = dataclasses.replace(scale, trials=0)
        own = dataclasses.replace(setting, opt_in=1.0, test=(), features=True)
        if recipe not in PAPER_RECIPES:
            made = domains.BY_NAME[own.domain]
            size = {"n_arms": made.usual_arms, "budget": made.usual_budget}
            own = dataclasses.replace(own, **size, shaping="none", epochs=None, freeze=None)
        return cls(recipe, own, scale)

    @property
    def title(self) -> str:
        arms = f", {self.setting.unique_arms} arms" if self.setting.unique_arms else ""
        return f"training {self.setting.domain} by {self.recipe}{arms}"

    @property
    def cost(self) -> float:
        states = dict(self.setting.train).get("population", 150) if self.setting.epidemic else 1
        paper = self.setting.n_arms / 21 + states / 20
        each = {"paper": paper, "paper-literal": 4 * paper, "sweep": 5 + states / 5}
        return 15 + self.scale.seeds * each.get(self.recipe, 3 + states / 50)

    def work(self, store: Store) -> TaskResult:
        """Trains and saves the models; the result has only the seeds, prices and spending."""
        hyper = self.scale.hyperparameters(self.recipe, self.setting)
        hyper |= {"n_arms": self.setting.n_arms, "budget": self.setting.budget}
        seeds, keep = range(self.scale.seeds), True
        if self.setting.unique_arms is None and not self.setting.own_maps:
            models = pretrain_seeds(
                self.setting.trained_on(), seeds, self.recipe, keep_collapsed=keep, **hyper
            )
        else:
            worlds = [self._own_world(seed) for seed in seeds]
            models = [
                pretrain_seeds(world, [seed], self.recipe, keep_collapsed=keep, **hyper)[0]
                for seed, world in zip(seeds, worlds, strict=True)
            ]
        for model in models:
            # This domain has arrays instead of numbers, which a model file cannot store.
            without_domain = dataclasses.replace(model, domain=None, history=None)
            without_domain.save(self._folder(store) / f"seed-{model.config.seed}")
        return {"seeds": np.array(seeds), **training_curves(models)}

    def _own_world(self, seed: int) -> Domain:
        """The domain of one seed, where seeds differ in their arms or projection. Most of the
        variance between seeds comes from these."""
        domain = self.setting.trained_on(seed)
        pool = self.setting.unique_arms
        return domain if pool is None else arm_pool(domain, pool, seed)

    def models(self, store: Store) -> list[Model]:
        """The trained models."""
        return [load(self._folder(store) / f"seed-{seed}") for seed in range(self.scale.seeds)]

    def _folder(self, store: Store):
        return store.path(self).with_suffix("")


@dataclasses.dataclass(frozen=True)
class Play(Task):
    """The reward of a policy, or of the models of a recipe, in every trial: (seed, trial)."""

    policy: str
    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, policy: str, setting: Setting, scale: Scale) -> "Play":
        """The task of a policy or recipe. Fields that do not affect it get their defaults."""
        if policy in policies.BY_NAME:
            setting, scale = untrained(setting), dataclasses.replace(scale, seeds=1)
        elif policy not in PAPER_RECIPES:
            setting = dataclasses.replace(setting, shaping="none", epochs=None, freeze=None)
        return cls(policy, setting, scale)

    @property
    def title(self) -> str:
        return f"playing {self.policy} on {self.setting.domain}, {self.setting.opt_in:.0%} in"

    @property
    def cost(self) -> float:
        rows = self.setting.n_arms * self.scale.trials_of(self.setting) / 21_000
        return 1 + rows * self.scale.seeds * (0.1 if self.policy in policies.BY_NAME else 0.4)

    def needs(self) -> tuple[Task, ...]:
        if self.policy in policies.BY_NAME:
            return ()
        return (Train.of(self.policy, self.setting, self.scale),)

    def work(self, store: Store) -> TaskResult:
        players = policies_named(self.policy, self.setting, self.scale, store)
        rewards = [
            rewards_in_trials(player, self.setting, self.scale, seed=seed)
            for seed, player in enumerate(players)
        ]
        return {"reward": np.stack(rewards)}


@dataclasses.dataclass(frozen=True)
class Bounds(Task):
    """The bound of the first trials, and the reward of the best policy that knows the dynamics."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "Bounds":
        """The task of a setting; only the test domain matters."""
        return cls(untrained(setting), dataclasses.replace(scale, seeds=1))

    @property
    def title(self) -> str:
        return f"bound of {self.setting.domain}, {self.setting.opt_in:.0%} in"

    @property
    def cost(self) -> float:
        states = self.setting.tried_on().n_cells
        trials = self.scale.bounded_trials_of(self.setting)
        return 3 + trials * self.setting.n_arms * states**2 / 1e6

    def work(self, store: Store) -> TaskResult:
        domain, trials = self.setting.tried_on(), self.scale.bounded_trials_of(self.setting)
        budget, keys = jnp.float32(self.setting.budget), trial_keys(EVALUATION_SEED, trials)
        batches = trial_batches(domain, self.setting.n_arms, self.setting.opt_in, keys)
        limits, prices = trial_bounds(domain, batches, budget, trials)
        knows = policies.BY_NAME[self.setting.knows]()
        informed = trial_rewards(knows, domain, batches, budget, trials, prices)
        return {"bound": limits, "informed": informed}


def training_curves(models: list[Model]) -> TaskResult:
    """Price and spending in each epoch of training, (seed, epoch), if the recipe has them."""
    history = [model.history for model in models if model.history is not None]
    return {
        name: np.stack([one[name].to_numpy() for one in history])
        for name in ("price", "spending")
        if history and all(name in one.columns for one in history)
    }


def untrained(setting: Setting) -> Setting:
    """The part of a setting that matters to a policy that has no features and no training."""
    options = {**dict(setting.train), **dict(setting.test)}
    return Setting(
        setting.domain, setting.n_arms, setting.budget, setting.opt_in, tuple(options.items())
    )


def arm_pool(domain: Domain, size: int, seed: int) -> ArmPool:
    """A pool of `size` arms of a domain, to train on."""
    arms = domain.draw_arms(jax.random.key(POOL_SEED + seed), max(size, LARGEST_POOL))
    return ArmPool(
        size,
        transitions=jax.vmap(domain.transitions)(arms),
        rewards=jax.vmap(domain.rewards)(arms),
        costs=jax.vmap(domain.costs)(arms),
        features=domain.features(arms),
        state_names=domain.state_names,
        action_names=domain.action_names,
        feature_names=domain.feature_names,
    )


def policies_named(policy: str, setting: Setting, scale: Scale, store: Store) -> list[Policy]:
    """The policy with that name, or the policies of the models of the recipe with that name."""
    if policy in policies.BY_NAME:
        return [policies.BY_NAME[policy]()]
    return [model.policy for model in Train.of(policy, setting, scale).models(store)]


def rewards_in_trials(
    policy: Policy, setting: Setting, scale: Scale, arms: Arms | None = None, seed: int = 0
) -> np.ndarray:
    """Reward per opted-in arm in every trial of a setting. Arms are new, or `arms`; their features
    are those that models of the training seed `seed` see."""
    domain, trials = setting.tried_on(seed), scale.trials_of(setting)
    keys = trial_keys(EVALUATION_SEED, trials)
    batches = trial_batches(domain, setting.n_arms, setting.opt_in, keys, arms=arms)
    return trial_rewards(policy, domain, batches, jnp.float32(setting.budget), trials)


INSTANCES = 32
"""Draws of arms for which the best price is computed."""

SEARCH_STEPS = 25
"""Steps of the search for the best price; each cuts a third of the interval."""


@dataclasses.dataclass(frozen=True)
class BestPrice(Task):
    """The price at which the relaxation is tightest, for several draws of arms: (instance,). The
    share of opted-in arms is that of training."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "BestPrice":
        """The task of a setting; only the domain, number of arms and budget matter."""
        plain = dataclasses.replace(untrained(setting), opt_in=Paper.opt_in)
        return cls(plain, dataclasses.replace(scale, seeds=1, trials=0))

    @property
    def title(self) -> str:
        return f"best price of {self.setting.domain}"

    @property
    def cost(self) -> float:
        return 5 + self.setting.tried_on().n_cells / 5

    def work(self, store: Store) -> TaskResult:
        domain = self.setting.tried_on()
        n_opted_in = opted_in_count(self.setting.opt_in, self.setting.n_arms)
        keys = jax.random.split(
            jax.random.key(EVALUATION_SEED), 4 if self.scale.quick else INSTANCES
        )
        budget = jnp.float32(self.setting.budget)
        return {"price": np.array([best_price(domain, n_opted_in, budget, key) for key in keys])}


@eqx.filter_jit
def best_price(
    domain: Domain, n_arms: int, budget: Float[Array, ""], key: Array
) -> Float[Array, ""]:
    """The price that minimises the dual for some new arms whose states are equally likely at the
    start; found by ternary search. The reward of a decision is that of the next state, as in
    training."""
    discount, arms = Paper.discount, domain.draw_arms(key, n_arms)
    moves, costs = jax.vmap(domain.transitions)(arms), jax.vmap(domain.costs)(arms)
    rewards = jax.vmap(domain.rewards)(arms) / discount

    def dual(price: Float[Array, ""]) -> Float[Array, ""]:
        values = value_iteration(moves, rewards, costs, price, discount).max(axis=2)
        return price * budget / (1 - discount) + values.mean(axis=1).sum()

    def narrow(_, ends):
        low, high = ends
        left, right = low + (high - low) / 3, high - (high - low) / 3
        falls = dual(left) > dual(right)
        return jnp.where(falls, left, low), jnp.where(falls, high, right)

    highest = (rewards.max() - rewards.min()) / (1 - discount)
    highest = highest / jnp.where(costs > 0, costs, jnp.inf).min()
    low, high = jax.lax.fori_loop(0, SEARCH_STEPS, narrow, (jnp.zeros_like(highest), highest))
    return (low + high) / 2
