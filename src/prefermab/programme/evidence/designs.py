"""Designs of a trial: what is drawn by lot, and how the effect is computed from it.

| design | drawn by lot | independent units |
|---|---|---|
| individual | people (balanced, if asked for) | people, but for the budget of an arm |
| stratified | people, within strata | the same, within strata |
| cluster | clusters, each with a budget of its own (in pairs, if balanced) | clusters |
| switchback | blocks of rounds, in pairs, for everybody | pairs of blocks |
| stepped wedge | the step at which a cluster begins | clusters |

Effects are rewards per person and round.
"""

import dataclasses

import numpy as np

from prefermab.errors import InputError, unknown
from prefermab.programme.evidence import effects
from prefermab.programme.evidence.effects import TrialArm
from prefermab.programme.intervals import LEVEL, Interval, from_influence

DESIGNS = ("individual", "stratified", "cluster", "switchback", "stepped wedge")
BY_CLUSTER, BY_PERSON = ("cluster", "stepped wedge"), ("individual", "stratified")


@dataclasses.dataclass(frozen=True)
class Design:
    """A design: its name, the rounds of the trial, for a switchback the rounds of a block, and for
    switchbacks and stepped wedges the rounds that are left out after each change.

    >>> import prefermab as pm
    >>> pm.evidence.Design("stepped wedge", rounds=20).period
    4
    """

    name: str
    rounds: int
    block: int = 4
    washout: int = 1

    def __post_init__(self) -> None:
        if self.name not in DESIGNS:
            raise unknown("design", self.name, DESIGNS)
        if self.name == "switchback" and self.rounds < 4 * self.block:
            raise InputError(
                f"a switchback of {self.rounds} rounds in blocks of {self.block} has fewer than "
                f"two pairs of blocks: give at least {4 * self.block} rounds, or shorter blocks."
            )
        if self.name in ("switchback", "stepped wedge") and self.washout >= self.period:
            raise InputError(
                f"the washout of {self.washout} rounds leaves nothing of {self.period} rounds."
            )

    @property
    def period(self) -> int:
        """Rounds between two changes; a stepped wedge has four steps and a period before them."""
        return self.block if self.name == "switchback" else max(self.rounds // 5, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Who is in which unit (person,) and when the model decides for it (unit, round); `stratum`
    (unit,) are units among which lots were drawn, `columns` (unit, column) what was balanced."""

    unit: np.ndarray
    schedule: np.ndarray
    stratum: np.ndarray
    columns: np.ndarray | None = None

    @property
    def by_model(self) -> np.ndarray:
        """(person, round): whether the model decides."""
        return self.schedule[self.unit]


def draw_layout(
    design: Design, unit: np.ndarray, stratum: np.ndarray, rng: np.random.Generator
) -> Layout:
    """Draws the lots of a trial for units in strata.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.designs import Design, draw_layout
    >>> design = Design("individual", rounds=3)
    >>> drawn = draw_layout(design, np.arange(10), np.zeros(10, int), np.random.default_rng(0))
    >>> int(drawn.schedule[:, 0].sum())
    5
    """
    size = len(stratum)
    if design.name == "switchback":
        return Layout(np.zeros_like(unit), _switching(design, rng)[None, :], np.zeros(1, int))
    if design.name == "stepped wedge":
        step = rng.permutation(np.arange(size) % 4) + 1
        starts = step * design.period
        return Layout(unit, np.arange(design.rounds) >= starts[:, None], stratum)
    model = np.zeros(size, bool)
    odd = rng.random() < 0.5
    for each in np.unique(stratum):
        here = rng.permutation(np.flatnonzero(stratum == each))
        # Left-over people of odd strata go to the arms in turns.
        model[here[: (len(here) + odd) // 2]] = True
        odd ^= bool(len(here) % 2)
    return Layout(unit, np.repeat(model[:, None], design.rounds, axis=1), stratum)


def _switching(design: Design, rng: np.random.Generator) -> np.ndarray:
    """(round,): in each pair of blocks one is the model's; rounds beyond the last pair are not."""
    pairs = design.rounds // (2 * design.block)
    first = rng.random(pairs) < 0.5
    blocks = np.stack([first, ~first], axis=1).ravel()
    found = np.zeros(design.rounds, bool)
    found[: len(blocks) * design.block] = np.repeat(blocks, design.block)
    return found


def estimate_trial_effects(
    design: Design, layout: Layout, people: TrialArm, indexed: bool = True, level: float = LEVEL
) -> dict[str, Interval]:
    """The effect of the model on the reward per person and round, by estimator, the one that counts
    first; `t-test` is only to compare. `indexed` says whether the model's index is known."""
    if design.name in BY_PERSON:
        return _by_person(design, layout, people, indexed, level)
    found = {
        "cluster": _by_cluster, "switchback": _by_block, "stepped wedge": _by_step
    }[design.name](design, layout, people, level)  # fmt: skip
    naive = _naive(design, layout, people, level)
    return {design.name: found, "t-test": naive}


def _by_person(
    design: Design, layout: Layout, people: TrialArm, indexed: bool, level: float
) -> dict[str, Interval]:
    model = layout.by_model[:, 0]
    stratum, columns = layout.stratum[layout.unit], np.zeros((len(model), 0))
    if layout.columns is not None:
        columns = layout.columns[layout.unit]
    arms = people.where(model), people.where(~model)
    lots = effects.Lots(stratum, columns, model)
    ways = {"reshuffled": effects.reshuffled, "difference": effects.difference,
            "t-test": effects.plain_difference}  # fmt: skip
    found = {
        name: _scaled(way(*arms, level=level, lots=lots), design.rounds)
        for name, way in ways.items()
        if indexed or name != "reshuffled"
    }
    if indexed:
        found["subgroup"] = effects.subgroup(*arms, level=level)
    return found


def _by_cluster(_: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """Clusters' means as units; differences within pairs where clusters were paired."""
    mean = _means(layout.unit, people.reward.mean(axis=1), len(layout.stratum))
    model = layout.schedule[:, 0]
    if len(np.unique(layout.stratum)) == 1:
        own, other = mean[model], mean[~model]
        total = len(mean)
        both = np.concatenate([(own - own.mean()) * total / len(own),
                               -(other - other.mean()) * total / len(other)])  # fmt: skip
        return from_influence(own.mean() - other.mean(), both, level, lost=2, normal=True)
    pairs = [
        mean[here & model].mean() - mean[here & ~model].mean()
        for each in np.unique(layout.stratum)
        if (here := layout.stratum == each)[model].any() and here[~model].any()
    ]
    return _of_units(np.array(pairs), level)


def _by_block(design: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """Differences within pairs of blocks, without the first rounds of each."""
    mean, model = people.reward.mean(axis=0), layout.schedule[0]
    pairs = design.rounds // (2 * design.block)
    shape = (pairs, 2, design.block)
    used = pairs * 2 * design.block
    kept = mean[:used].reshape(shape)[:, :, design.washout :].mean(axis=2)
    first = model[:used].reshape(shape)[:, 0, 0]
    return _of_units(np.where(first, 1, -1) * (kept[:, 0] - kept[:, 1]), level)


def _by_step(design: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """Clusters and periods as effects, the model as a third; the error by leaving out one cluster
    after the other."""
    size, period = len(layout.stratum), design.period
    number = design.rounds // period
    each = np.stack([_means(layout.unit, r, size) for r in people.reward.T], axis=1)
    shape = (size, number, period)
    mean = each[:, : number * period].reshape(shape)[:, :, design.washout :].mean(axis=2)
    treated = layout.schedule[:, : number * period].reshape(shape)[:, :, -1].astype(float)

    def effect(rows: np.ndarray) -> float:
        x, y = treated[rows], mean[rows]
        x = x - x.mean(axis=0) - x.mean(axis=1, keepdims=True) + x.mean()
        return float((x * y).sum() / max((x * x).sum(), 1e-12))

    whole, rows = effect(np.arange(size)), np.arange(size)
    left = np.array([effect(rows[rows != one]) for one in rows])
    return from_influence(whole, (size - 1) * (left.mean() - left), level, normal=True)


def _naive(design: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """People, or where everybody changes arms person-rounds, as if all were independent."""
    model = layout.by_model
    if design.name == "cluster":
        arms = people.where(model[:, 0]), people.where(~model[:, 0])
        return _scaled(effects.plain_difference(*arms, level=level), design.rounds)
    own, other = people.reward[model], people.reward[~model]
    error = np.sqrt(own.var(ddof=1) / own.size + other.var(ddof=1) / other.size)
    middle, reach = float(own.mean() - other.mean()), 1.645 * float(error)
    return Interval(middle, middle - reach, middle + reach, float(error))


def _means(unit: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(unit, values, size) / np.maximum(np.bincount(unit, minlength=size), 1)


def _of_units(values: np.ndarray, level: float) -> Interval:
    return from_influence(float(values.mean()), values - values.mean(), level, normal=True)


def _scaled(found: Interval, rounds: int) -> Interval:
    return Interval(*(x / rounds for x in (found.estimate, found.low, found.high, found.stderr)))
