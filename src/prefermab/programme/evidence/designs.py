"""Designs of a trial: what is randomised, and how the effect is estimated.

| design | randomised | independent units of the standard error |
|---|---|---|
| individual | people (balanced on columns if wanted) | people, corrected for the arm's budget |
| stratified | people, within strata | people within strata, corrected for the arm's budget |
| cluster | clusters, each with its own budget (in pairs if balanced) | clusters, or pairs of them |
| switchback | which block of each pair of blocks of rounds has the model | pairs of blocks |
| stepped wedge | the step at which the model starts in a cluster | clusters |

Effects are intention-to-treat differences in the reward per person and round, model less control.
"""

import dataclasses

import numpy as np

from prefermab.common.intervals import LEVEL, Interval, from_influence
from prefermab.errors import InputError, unknown
from prefermab.programme.evidence import effects
from prefermab.programme.evidence.effects import TrialArm

DESIGNS = ("individual", "stratified", "cluster", "switchback", "stepped wedge")
BY_CLUSTER, BY_PERSON = ("cluster", "stepped wedge"), ("individual", "stratified")


@dataclasses.dataclass(frozen=True)
class Design:
    """A design: its name, the rounds of the trial, the rounds of a `block` (switchback only), and
    the `washout`: rounds that are left out after each change (switchback and stepped wedge only).

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
                f"the washout of {self.washout} rounds must be shorter than a period, "
                f"{self.period} rounds."
            )

    @property
    def period(self) -> int:
        """Rounds between two changes. A stepped wedge has one period before its four steps."""
        return self.block if self.name == "switchback" else max(self.rounds // 5, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The assignment of a trial: the `unit` of each person (person,), and in which rounds the model
    decides for a unit (`schedule`: unit, round). `stratum` (unit,) are the strata within which
    units were randomised, `columns` (unit, column) the balanced columns."""

    unit: np.ndarray
    schedule: np.ndarray
    stratum: np.ndarray
    columns: np.ndarray | None = None

    @property
    def by_model(self) -> np.ndarray:
        """(person, round): whether the model decides for the person."""
        return self.schedule[self.unit]


def draw_layout(
    design: Design, unit: np.ndarray, stratum: np.ndarray, rng: np.random.Generator
) -> Layout:
    """Randomises the units of a trial within their strata.

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
        # The extra unit of a stratum of odd size goes to each arm in turn.
        model[here[: (len(here) + odd) // 2]] = True
        odd ^= bool(len(here) % 2)
    return Layout(unit, np.repeat(model[:, None], design.rounds, axis=1), stratum)


def _switching(design: Design, rng: np.random.Generator) -> np.ndarray:
    """(round,): whether the model decides: in one block of each pair, never after the last pair."""
    pairs = design.rounds // (2 * design.block)
    first = rng.random(pairs) < 0.5
    blocks = np.stack([first, ~first], axis=1).ravel()
    found = np.zeros(design.rounds, bool)
    found[: len(blocks) * design.block] = np.repeat(blocks, design.block)
    return found


def estimate_trial_effects(
    design: Design, layout: Layout, people: TrialArm, indexed: bool = True, level: float = LEVEL
) -> dict[str, Interval]:
    """The effect of the model on the reward per person and round, by estimator. The first one is
    the primary estimator; `t-test` is for comparison only. `indexed` says whether people can be
    exchanged between arms by the model's index."""
    if design.name in BY_PERSON:
        return _person_effects(design, layout, people, indexed, level)
    estimator = {
        "cluster": _cluster_effect, "switchback": _switchback_effect,
        "stepped wedge": _stepped_wedge_effect,
    }[design.name]  # fmt: skip
    naive = _naive_effect(design, layout, people, level)
    return {design.name: estimator(design, layout, people, level), "t-test": naive}


def _person_effects(
    design: Design, layout: Layout, people: TrialArm, indexed: bool, level: float
) -> dict[str, Interval]:
    model = layout.by_model[:, 0]
    stratum, columns = layout.stratum[layout.unit], np.zeros((len(model), 0))
    if layout.columns is not None:
        columns = layout.columns[layout.unit]
    arms = people.where(model), people.where(~model)
    randomisation = effects.Randomisation(stratum, columns, model)
    estimators = {"reshuffled": effects.reshuffled, "difference": effects.difference,
                  "t-test": effects.plain_difference}  # fmt: skip
    found = {
        name: _per_round(estimator(*arms, level=level, randomisation=randomisation), design.rounds)
        for name, estimator in estimators.items()
        if indexed or name != "reshuffled"
    }
    if indexed:
        found["subgroup"] = effects.subgroup(*arms, level=level)
    return found


def _cluster_effect(_: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """The difference between the means of cluster means; where clusters were paired, the mean
    difference within pairs. Student's interval."""
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
    return _mean_interval(np.array(pairs), level)


def _switchback_effect(design: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """The mean difference within pairs of blocks, without the washout rounds of each block."""
    mean, model = people.reward.mean(axis=0), layout.schedule[0]
    pairs = design.rounds // (2 * design.block)
    shape = (pairs, 2, design.block)
    used = pairs * 2 * design.block
    kept = mean[:used].reshape(shape)[:, :, design.washout :].mean(axis=2)
    first = model[:used].reshape(shape)[:, 0, 0]
    return _mean_interval(np.where(first, 1, -1) * (kept[:, 0] - kept[:, 1]), level)


def _stepped_wedge_effect(
    design: Design, layout: Layout, people: TrialArm, level: float
) -> Interval:
    """Two-way fixed effects: cluster means are regressed on cluster, period and treatment. The
    standard error is the jackknife over clusters."""
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


def _naive_effect(design: Design, layout: Layout, people: TrialArm, level: float) -> Interval:
    """The difference in means as if people were independent. In a switchback and a stepped wedge,
    where people change arms, as if all rounds of all people were independent."""
    model = layout.by_model
    if design.name == "cluster":
        arms = people.where(model[:, 0]), people.where(~model[:, 0])
        return _per_round(effects.plain_difference(*arms, level=level), design.rounds)
    own, other = people.reward[model], people.reward[~model]
    error = np.sqrt(own.var(ddof=1) / own.size + other.var(ddof=1) / other.size)
    middle, reach = float(own.mean() - other.mean()), 1.645 * float(error)
    return Interval(middle, middle - reach, middle + reach, float(error))


def _means(unit: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(unit, values, size) / np.maximum(np.bincount(unit, minlength=size), 1)


def _mean_interval(values: np.ndarray, level: float) -> Interval:
    """Student's interval of the mean of independent values."""
    return from_influence(float(values.mean()), values - values.mean(), level, normal=True)


def _per_round(found: Interval, rounds: int) -> Interval:
    """The interval of a sum over rounds, per round."""
    return Interval(*(x / rounds for x in (found.estimate, found.low, found.high, found.stderr)))
