"""The computed results: rewards, means with standard errors, and shares of the bound; and the tasks
that tables and figures need."""

import dataclasses

import numpy as np

from prefermab.paper.given_arms import Curves, TrainTopline, ZeroShot
from prefermab.paper.runner import PAPER_RECIPES, Scale, Store, Task
from prefermab.paper.tables import Figure, Row, Setting, Table
from prefermab.paper.tasks import BestPrice, Bounds, Play, Train

WHERE_TUNED = (
    ("Synthetic, N = 21, B = 7", Setting("synthetic", 21, 7)),
    ("ARMMAN, N = 25, B = 7", Setting("armman", 25, 7)),
    ("SIS, N = 20, B = 16, S = 50", Setting("sis", 20, 16, train=(("population", 50),))),
)
"""Settings in which fine-tuning is compared with DDLPO from scratch."""

LEARN_BY_SAMPLES = (*PAPER_RECIPES, "sweep")
"""Recipes that fine-tune from samples; `exact` uses the known dynamics instead."""


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean with its standard error, over training seeds and trials."""

    value: float
    stderr: float

    @classmethod
    def of(cls, rewards: np.ndarray) -> "Mean":
        """The mean of rewards (seed, trial). Its error adds the variances over seeds and trials."""
        error = sum(_spread(rewards.mean(axis=axis)) ** 2 for axis in (0, 1))
        return cls(float(rewards.mean()), float(np.sqrt(error)))


def _spread(values: np.ndarray) -> float:
    """The standard error of the mean of independent values."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


@dataclasses.dataclass(frozen=True)
class Results:
    """All results for these recipes, read from the store."""

    store: Store
    scale: Scale
    recipes: tuple[str, ...]

    def rewards(self, policy: str, setting: Setting) -> np.ndarray:
        """Rewards (seed, trial) of a policy or recipe."""
        return self.store.get(Play.of(policy, setting, self.scale))["reward"]

    def bound(self, setting: Setting) -> np.ndarray:
        """The bound of the first trials."""
        return self.store.get(Bounds.of(setting, self.scale))["bound"]

    def informed(self, setting: Setting) -> np.ndarray:
        """Rewards in the first trials of the policy that knows the dynamics."""
        return self.store.get(Bounds.of(setting, self.scale))["informed"]

    def share(self, recipe: str, setting: Setting, of: np.ndarray) -> float:
        """The reward of a recipe as a share of `of`, a bound or rewards, on the trials of `of`."""
        return float(self.rewards(recipe, setting)[:, : of.size].mean() / of.mean())

    def topline(self, setting: Setting) -> dict[str, np.ndarray]:
        """Rewards (seed, trial) of the topline's `best` and `last` epoch."""
        return self.store.get(TrainTopline.of(setting, self.scale))

    def zero_shot(self, recipe: str, setting: Setting) -> np.ndarray:
        """Rewards (seed, trial) of a recipe on the topline's arms."""
        return self.store.get(self.zero_shot_task(recipe, setting))["reward"]

    def zero_shot_task(self, recipe: str, setting: Setting) -> ZeroShot:
        """The task of a recipe on the topline's arms."""
        topline = TrainTopline.of(setting, self.scale).setting
        return ZeroShot(recipe, dataclasses.replace(topline, features=True), self.scale)

    def curve(self, recipe: str | None, setting: Setting) -> dict[str, np.ndarray]:
        """`samples` (point) and `reward` (seed, point); for DDLPO also `random` (seed)."""
        return self.store.get(Curves.of(recipe, setting, self.scale))

    def prices(self, recipe: str, setting: Setting) -> np.ndarray:
        """The price in training: (seed, epoch)."""
        return self.store.get(Train.of(recipe, setting, self.scale))["price"]

    def best_prices(self, setting: Setting) -> np.ndarray:
        """The best price for each draw of arms."""
        return self.store.get(BestPrice.of(setting, self.scale))["price"]

    def tasks_of(self, table: Table) -> list[Task]:
        """The tasks that a table needs."""
        found: list[Task] = []
        for section in table.sections:
            for row in section.rows:
                for setting, published in zip(row.settings, row.published, strict=True):
                    found += self._cell_tasks(row, setting, published)
        return found

    def tuning_tasks(self) -> list[Task]:
        """The tasks that the comparison of fine-tuning and DDLPO needs."""
        who = [None, *(recipe for recipe in self.recipes if recipe in LEARN_BY_SAMPLES)]
        return [
            Curves.of(recipe, at, self.scale)
            for _, setting in self.where()
            for at in both_toplines(setting)
            for recipe in who
        ]

    def price_tasks(self) -> list[Task]:
        """The tasks that the convergence of the price needs."""
        recipes = [recipe for recipe in self.recipes if recipe in PAPER_RECIPES]
        found: list[Task] = []
        for _, setting in self.where() if recipes else ():
            found += [Train.of(recipe, setting, self.scale) for recipe in recipes]
            found.append(BestPrice.of(setting, self.scale))
        return found

    def where(self) -> list[tuple[str, Setting]]:
        """Titles and settings of fine-tuning; a single small one for a quick report."""
        if not self.scale.quick:
            return list(WHERE_TUNED)
        title, setting = WHERE_TUNED[0]
        return [(title, quick_setting(setting))]

    def _cell_tasks(self, row: Row, setting: Setting, published: Figure | None) -> list[Task]:
        if row.policy in ("none", "random"):
            return [Play.of(row.policy, setting, self.scale)]
        if row.policy == "prefermab":
            plays: list[Task] = [Play.of(recipe, setting, self.scale) for recipe in self.recipes]
            return [*plays, Bounds.of(setting, self.scale)]
        if published is None:
            return []
        found: list[Task] = [TrainTopline.of(at, self.scale) for at in topline_settings(setting)]
        if setting.map == "linear":
            found += [self.zero_shot_task(recipe, setting) for recipe in self.recipes]
        return found


def both_toplines(setting: Setting) -> tuple[Setting, Setting]:
    """A setting for DDLPO without features, as in the paper, and one with features."""
    without, with_features = (dataclasses.replace(setting, features=on) for on in (False, True))
    return without, with_features


def topline_settings(setting: Setting) -> tuple[Setting, ...]:
    """The settings for a cell of the topline: without and with features. With identity features
    (table 12), these are different rows already."""
    return (setting,) if setting.map == "identity" else both_toplines(setting)


def quick_table(table: Table) -> Table:
    """A small version of a table: one section, few columns, arms and states. It leaves out what
    other tables also show: a second reward, masks in between, the topline of other domains."""
    section = table.sections[0]
    ends = (0,) if table.name == "table5" else (0, len(table.columns) - 1)
    rows = tuple(
        dataclasses.replace(
            row,
            settings=tuple(quick_setting(row.settings[i]) for i in ends),
            published=tuple(row.published[i] for i in ends),
        )
        for row in section.rows
        if row.settings[0].masked != (3,)
        and (row.policy != "ddlpo" or row.settings[0].domain == "synthetic")
    )
    columns = tuple(table.columns[i] for i in ends)
    sections = (dataclasses.replace(section, rows=rows),)
    return dataclasses.replace(table, columns=columns, sections=sections)


def quick_setting(setting: Setting) -> Setting:
    """The setting with six arms, ten people in an epidemic, and a coarse grid."""
    options = dict(setting.train)
    if setting.domain == "sis":
        options["population"] = 10
    elif setting.domain.startswith("continuous"):
        options["grid"] = 21
    train = tuple(options.items())
    budget = 5 if setting.epidemic else 2
    pool = None if setting.unique_arms is None else min(setting.unique_arms, 45)
    small = {"epochs": None, "freeze": None}
    return dataclasses.replace(
        setting, n_arms=6, budget=budget, train=train, unique_arms=pool, **small
    )
