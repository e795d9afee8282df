"""The tasks behind the report: trainings, plays, bounds, the topline and fine-tuning."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from prefermab import domains, policies
from prefermab.arms import Arm, Arms, Key
from prefermab.domains import Domain
from prefermab.evaluation import (
    everyone_in,
    play_trials,
    trial_batches,
    trial_bounds,
    trial_keys,
    trial_rewards,
)
from prefermab.finetuning import CURVE_SEED, ddlpo, finetune
from prefermab.model import Model
from prefermab.paper.runner import EVALUATION_SEED, PAPER_RECIPES, Scale, Store, Task, TaskResult
from prefermab.paper.tables import Setting
from prefermab.policies import Policy
from prefermab.rollout import reward_per_arm
from prefermab.storage import load
from prefermab.training import pretrain_seeds

ARMS_SEED, POOL_SEED = 1000, 2000
CURVE_TRIALS = 200
LARGEST_POOL = 567


class ArmPool(domains.Tabular):
    """Draws only from the first `size` of the given arms, each once before any is drawn again. The
    others fill up the table, so that pools of any size share compiled code."""

    size: Int[Array, ""]

    def __init__(self, size: int, **given: Any):
        super().__init__(**given)
        self.size = jnp.asarray(size)

    def draw(self, key: Key) -> Arm:
        return jax.random.randint(key, (), 0, self.size)

    def draw_arms(self, key: Key, n_arms: int) -> Arms:
        key_order, key_more = jax.random.split(key)
        there = jnp.arange(self.table.shape[0])
        luck = jax.random.uniform(key_order, there.shape)
        order = jnp.argsort(jnp.where(there < self.size, luck, 2.0))
        place = jnp.arange(n_arms)
        once = order[jnp.minimum(place, there.size - 1)]
        again = jax.random.randint(key_more, (n_arms,), 0, self.size)
        return jnp.where(place < self.size, once, again)


@dataclasses.dataclass(frozen=True)
class Train(Task):
    """Trains models with one recipe, one for each seed."""

    recipe: str
    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, recipe: str, setting: Setting, scale: Scale) -> "Train":
        """The training that a setting needs, without what does not matter to it."""
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
        each = {"paper": self.setting.n_arms / 21 + states / 20, "sweep": 5 + states / 5}
        return 15 + self.scale.seeds * each.get(self.recipe, 3 + states / 50)

    def work(self, store: Store) -> TaskResult:
        """Trains and saves the models; the result only says that they are there."""
        hyper = self.scale.hyperparameters(self.recipe, self.setting)
        hyper |= {"n_arms": self.setting.n_arms, "budget": self.setting.budget}
        seeds, domain = range(self.scale.seeds), self.setting.trained_on()
        if self.setting.unique_arms is None:
            models = pretrain_seeds(domain, seeds, self.recipe, keep_collapsed=True, **hyper)
        else:
            # Every seed has arms of its own: most of the variance is in which arms they are.
            pools = [arm_pool(domain, self.setting.unique_arms, seed) for seed in seeds]
            models = [
                pretrain_seeds(pool, [seed], self.recipe, keep_collapsed=True, **hyper)[0]
                for seed, pool in zip(seeds, pools, strict=True)
            ]
        for model in models:
            # The domain holds arrays in place of numbers, which a model's file does not keep.
            nameless = dataclasses.replace(model, domain=None, history=None)
            nameless.save(self._folder(store) / f"seed-{model.config.seed}")
        return {"seeds": np.array(seeds)}

    def models(self, store: Store) -> list[Model]:
        """The trained models."""
        return [load(self._folder(store) / f"seed-{seed}") for seed in range(self.scale.seeds)]

    def _folder(self, store: Store):
        return store.path(self).with_suffix("")


@dataclasses.dataclass(frozen=True)
class Play(Task):
    """What a policy, or the models of a recipe, earn in every trial: (seed, trial)."""

    policy: str
    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, policy: str, setting: Setting, scale: Scale) -> "Play":
        """A policy that is not trained does not depend on the settings of training."""
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
        rewards = [rewards_in_trials(player, self.setting, self.scale) for player in players]
        return {"reward": np.stack(rewards)}


@dataclasses.dataclass(frozen=True)
class Bounds(Task):
    """The bound of the first trials, and what the best policy that knows the dynamics earns."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "Bounds":
        """Only the test domain matters."""
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


@dataclasses.dataclass(frozen=True)
class TrainTopline(Task):
    """DDLPO on a set of arms for each seed: what its best and its last epoch earn there."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "TrainTopline":
        """The topline is trained and tried on the same arms, everyone in."""
        plain = dataclasses.replace(untrained(setting), opt_in=1.0)
        return cls(dataclasses.replace(plain, map=setting.map, features=setting.features), scale)

    @property
    def title(self) -> str:
        return f"topline of {self.setting.domain}, {self.setting.n_arms} arms"

    @property
    def cost(self) -> float:
        return 20 + self.scale.seeds * self.setting.n_arms * (0.4 if self.setting.epidemic else 0.1)

    def work(self, store: Store) -> TaskResult:
        domain, found = self.setting.tried_on(), {"best": [], "last": []}
        for seed in range(self.scale.seeds):
            arms = topline_arms(domain, self.setting, seed)
            topline = ddlpo(
                domain, arms, budget=self.setting.budget, with_features=self.setting.features,
                seed=seed,                **self.scale.hyperparameters("paper", self.setting),
            )  # fmt: skip
            found["best"].append(rewards_in_trials(topline.best, self.setting, self.scale, arms))
            found["last"].append(rewards_in_trials(topline.last, self.setting, self.scale, arms))
        return {name: np.stack(rewards) for name, rewards in found.items()}


@dataclasses.dataclass(frozen=True)
class ZeroShot(Task):
    """What a recipe's models earn on the arms that the topline was trained on: (seed, trial)."""

    recipe: str
    setting: Setting
    scale: Scale

    @property
    def title(self) -> str:
        return f"{self.recipe} on the topline's arms of {self.setting.domain}"

    @property
    def cost(self) -> float:
        return 5 + self.scale.seeds * self.setting.n_arms / 42

    def needs(self) -> tuple[Task, ...]:
        return (Train.of(self.recipe, self.setting, self.scale),)

    def work(self, store: Store) -> TaskResult:
        domain = self.setting.tried_on()
        players = policies_named(self.recipe, self.setting, self.scale, store)
        rewards = [
            rewards_in_trials(
                player, self.setting, self.scale, topline_arms(domain, self.setting, seed)
            )
            for seed, player in enumerate(players)
        ]
        return {"reward": np.stack(rewards)}


@dataclasses.dataclass(frozen=True)
class Curves(Task):
    """Reward against samples of each arm, on the same arms and trials: fine-tuning a recipe's
    models (`recipe`), or DDLPO from scratch (None). (seed, point), the first without samples."""

    recipe: str | None
    setting: Setting
    scale: Scale

    @property
    def title(self) -> str:
        what = "DDLPO from scratch" if self.recipe is None else f"fine-tuning {self.recipe}"
        return f"{what} on {self.setting.domain}"

    @property
    def cost(self) -> float:
        return 20 + self.scale.seeds * (8 if self.recipe is None else 2)

    def needs(self) -> "tuple[Train, ...]":
        return () if self.recipe is None else (Train.of(self.recipe, self.setting, self.scale),)

    def work(self, store: Store) -> TaskResult:
        domain, setting = self.setting.tried_on(), self.setting
        trials = min(CURVE_TRIALS, self.scale.trials)
        models = [model for need in self.needs() for model in need.models(store)]
        curves, samples = [], np.zeros(0)
        for seed in range(self.scale.seeds):
            arms = topline_arms(domain, setting, seed)
            if self.recipe is None:
                hyper = self.scale.hyperparameters("paper", setting)
                history = ddlpo(
                    domain, arms, budget=setting.budget, trials=trials, seed=seed, **hyper
                ).history
                start = np.nan
            else:
                tuned = finetune(
                    models[seed], domain, arms=arms, budget=setting.budget, trials=trials,
                    seed=seed, epochs=2 if self.scale.quick else 10,
                )  # fmt: skip
                history = tuned.history
                assert history is not None
                start = on_curve_trials(models[seed].policy, domain, arms, setting, trials, seed)
            samples = np.concatenate([[0], history["samples_per_arm"].to_numpy()])
            curves.append(np.concatenate([[start], history["mean"].to_numpy()]))
        return {"samples": samples, "reward": np.stack(curves)}


def untrained(setting: Setting) -> Setting:
    """The part of a setting that matters to a policy without features or training."""
    options = {**dict(setting.train), **dict(setting.test)}
    return Setting(
        setting.domain, setting.n_arms, setting.budget, setting.opt_in, tuple(options.items())
    )


def arm_pool(domain: Domain, size: int, seed: int) -> ArmPool:
    """`size` arms of a domain to train on."""
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


def topline_arms(domain: Domain, setting: Setting, seed: int) -> Arms:
    """The arms on which the topline of a seed is trained and tested."""
    return domain.draw_arms(jax.random.key(ARMS_SEED + seed), setting.n_arms)


def policies_named(policy: str, setting: Setting, scale: Scale, store: Store) -> list[Policy]:
    """The policy of that name, or the models of the recipe of that name."""
    if policy in policies.BY_NAME:
        return [policies.BY_NAME[policy]()]
    return [model.policy for model in Train.of(policy, setting, scale).models(store)]


def rewards_in_trials(
    policy: Policy, setting: Setting, scale: Scale, arms: Arms | None = None
) -> np.ndarray:
    """Reward per opted-in arm in every trial of a setting, on new arms or on `arms`."""
    domain, trials = setting.tried_on(), scale.trials_of(setting)
    keys = trial_keys(EVALUATION_SEED, trials)
    batches = trial_batches(domain, setting.n_arms, setting.opt_in, keys, arms=arms)
    return trial_rewards(policy, domain, batches, jnp.float32(setting.budget), trials)


def on_curve_trials(
    policy: Policy, domain: Domain, arms: Arms, setting: Setting, trials: int, seed: int
) -> float:
    """Mean reward on the trials on which fine-tuning and DDLPO draw their curves."""
    tests = everyone_in(seed + CURVE_SEED, trials, setting.n_arms, arms)
    played = play_trials(policy, domain, tests, jnp.float32(setting.budget))
    return float(reward_per_arm(played).mean())
