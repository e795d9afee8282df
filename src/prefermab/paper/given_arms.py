"""Tasks on given arms: the topline, models on its arms, and fine-tuning."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab import policies
from prefermab.arms.observation import Arms
from prefermab.domains import Domain
from prefermab.evaluation.compare import everyone_in, play_trials
from prefermab.evaluation.rollout import reward_per_arm
from prefermab.models.model import Model
from prefermab.paper.runner import Scale, Store, Task, TaskResult
from prefermab.paper.tables import Setting
from prefermab.paper.tasks import Train, policies_named, rewards_in_trials, untrained
from prefermab.policies import Policy
from prefermab.recipes import Tuning
from prefermab.training.finetuning import CURVE_SEED, finetune
from prefermab.training.topline import ddlpo

ARMS_SEED = 1000
CURVE_TRIALS = 200
TUNED_SAMPLES = 1000
"""Fine-tuning uses at least this many samples of each arm: more than 12.5 % of DDLPO's samples."""


@dataclasses.dataclass(frozen=True)
class TrainTopline(Task):
    """DDLPO on a set of arms for each seed: the rewards of its best and its last epoch there."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "TrainTopline":
        """The task of a setting. The topline is tested on its training arms, all opted in."""
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
                seed=seed, **self.scale.hyperparameters("paper", self.setting),
            )  # fmt: skip
            found["best"].append(rewards_in_trials(topline.best, self.setting, self.scale, arms))
            found["last"].append(rewards_in_trials(topline.last, self.setting, self.scale, arms))
        return {name: np.stack(rewards) for name, rewards in found.items()}


@dataclasses.dataclass(frozen=True)
class ZeroShot(Task):
    """The rewards of a recipe's models on the arms of the topline's training: (seed, trial)."""

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
    """Reward by the number of samples of each arm, on the same arms and trials: (seed, point).

    `recipe` is the recipe whose models are fine-tuned, or None for DDLPO from scratch. The first
    point has no samples. For DDLPO the result also has the reward of Random: (seed,).
    """

    recipe: str | None
    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, recipe: str | None, setting: Setting, scale: Scale) -> "Curves":
        """The task of a recipe or DDLPO. `setting.features` matters to DDLPO only."""
        if recipe is not None:
            setting = dataclasses.replace(setting, features=True)
        return cls(recipe, setting, scale)

    @property
    def title(self) -> str:
        what = "DDLPO from scratch" if self.recipe is None else f"fine-tuning {self.recipe}"
        return f"{what} on {self.setting.domain}"

    @property
    def cost(self) -> float:
        return 20 + self.scale.seeds * 8

    @property
    def trials(self) -> int:
        """Number of trials for each point."""
        return min(CURVE_TRIALS, self.scale.trials)

    def needs(self) -> "tuple[Train, ...]":
        return () if self.recipe is None else (Train.of(self.recipe, self.setting, self.scale),)

    def work(self, store: Store) -> TaskResult:
        models = [model for need in self.needs() for model in need.models(store)]
        seeds = range(self.scale.seeds)
        found = [self.tuned(models[i], i) if models else self.from_scratch(i) for i in seeds]
        joined = {name: np.stack([one[name] for one in found]) for name in found[0]}
        return {**joined, "samples": joined["samples"][0]}

    def tuned(self, model: Model, seed: int) -> TaskResult:
        """The curve of a model that is fine-tuned on a seed's arms."""
        domain = self.setting.tried_on()
        arms = topline_arms(domain, self.setting, seed)
        each = Tuning.rounds * max(1, model.config.samples_per_round(domain))
        history = finetune(
            model, domain, arms=arms, budget=self.setting.budget, trials=self.trials, seed=seed,
            epochs=2 if self.scale.quick else math.ceil(TUNED_SAMPLES / each),
        ).history  # fmt: skip
        assert history is not None
        start = self.earned(model.policy, domain, arms, seed)
        return curve_from(start, history)

    def from_scratch(self, seed: int) -> TaskResult:
        """The curve of DDLPO on a seed's arms, beginning before its training."""
        domain, setting = self.setting.tried_on(), self.setting
        arms = topline_arms(domain, setting, seed)
        topline = ddlpo(
            domain, arms, budget=setting.budget, with_features=setting.features,
            trials=self.trials, seed=seed, **self.scale.hyperparameters("paper", setting),
        )  # fmt: skip
        random = self.earned(policies.Random(), domain, arms, seed)
        curve = curve_from(self.earned(topline.start, domain, arms, seed), topline.history)
        return {**curve, "random": np.array(random)}

    def earned(self, policy: Policy, domain: Domain, arms: Arms, seed: int) -> float:
        """Mean reward on the trials that the curves of fine-tuning and DDLPO use."""
        tests = everyone_in(seed + CURVE_SEED, self.trials, self.setting.n_arms, arms)
        played = play_trials(policy, domain, tests, jnp.float32(self.setting.budget))
        return float(reward_per_arm(played).mean())


def curve_from(start: float, history: pl.DataFrame) -> TaskResult:
    """Samples and rewards: first the reward without samples, then those of the history."""
    return {
        "samples": np.concatenate([[0], history["samples_per_arm"].to_numpy()]),
        "reward": np.concatenate([[start], history["mean"].to_numpy()]),
    }


def topline_arms(domain: Domain, setting: Setting, seed: int) -> Arms:
    """The arms on which the topline of a seed is trained and tested."""
    return domain.draw_arms(jax.random.key(ARMS_SEED + seed), setting.n_arms)
