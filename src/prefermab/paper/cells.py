"""Compares every published cell with ours: baselines, models and the topline, with their errors.

The 50 published trials share about 130 test arms, so the printed standard deviation over √50
underestimates the error. No Action and Random learn nothing, so the differences between their
published and our rewards show how much larger the true error is. For each domain the printed error
is multiplied by one factor, chosen so that these differences are as large as the errors say. A
factor also includes differences between our reading of the paper and the authors' code, such as how
arms are drawn.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from prefermab.paper.results import Mean, Results, topline_settings
from prefermab.paper.tables import Figure, Row, Section, Setting, Table
from prefermab.paper.tasks import untrained

LARGEST_FACTOR = 100.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """A published mean and ours; `printed` is the published error if trials were independent."""

    published: float
    printed: float
    ours: float
    stderr: float

    def error(self, factor: float) -> float:
        """The standard error of the difference."""
        return math.hypot(self.stderr, factor * self.printed)

    def z(self, factor: float) -> float:
        """The difference in standard errors."""
        gap, error = self.ours - self.published, self.error(factor)
        return gap / error if error else math.inf * gap if gap else 0.0

    def mark(self, factor: float, bound: float = math.inf) -> str:
        """`better`, `same` (within two standard errors), `worse`, or `beyond`: worse, but the
        published figure is above the bound, which no policy can reach."""
        z = self.z(factor)
        if abs(z) <= 2:
            return "same"
        return "better" if z > 0 else "beyond" if self.published > bound else "worse"


@dataclasses.dataclass(frozen=True)
class NoiseFit:
    """The factor of a domain, the number of baseline cells to which it is fitted, and how many of
    them are within two standard errors with the factor and without it."""

    factor: float = 1.0
    cells: int = 0
    within: int = 0
    within_as_printed: int = 0


@dataclasses.dataclass(frozen=True)
class Noise:
    """The factors by domain: for rewards (`level`), and for rewards over No Action (`lift`)."""

    level: Mapping[str, NoiseFit] = dataclasses.field(default_factory=dict)
    lift: Mapping[str, NoiseFit] = dataclasses.field(default_factory=dict)

    def of_level(self, domain: str) -> float:
        """The factor for a reward."""
        return self.level.get(domain, NoiseFit()).factor

    def of_lift(self, domain: str) -> float:
        """The factor for a lift over No Action."""
        return self.lift.get(domain, NoiseFit()).factor


def fit_factor(pairs: Sequence[Pair]) -> NoiseFit:
    """The factor at which the mean square of the differences, in standard errors, is one.

    It is never below one, because 50 trials cannot be more precise than independent trials.

    >>> from prefermab.paper.cells import Pair, fit_factor
    >>> round(fit_factor([Pair(1.0, 0.1, 1.3, 0.0), Pair(1.0, 0.1, 0.7, 0.0)]).factor, 3)
    3.0
    """
    if not pairs:
        return NoiseFit()
    low, high = 1.0, LARGEST_FACTOR
    for _ in range(50):
        middle = (low + high) / 2
        wide = np.mean([pair.z(middle) ** 2 for pair in pairs]) < 1
        low, high = (low, middle) if wide else (middle, high)
    return NoiseFit(low, len(pairs), count_within(pairs, low), count_within(pairs, 1.0))


def count_within(pairs: Iterable[Pair], factor: float) -> int:
    """Number of differences that are within two standard errors."""
    return int(sum(abs(pair.z(factor)) <= 2 for pair in pairs))


BASELINES = ("none", "random")
EPOCHS_SHOWN = ("best", "last")


@dataclasses.dataclass(frozen=True)
class Lift:
    """The reward over No Action, published and ours, and the mark that compares them."""

    pair: Pair
    mark: str


@dataclasses.dataclass(frozen=True)
class CellComparison:
    """One published cell and ours. `who` is the recipe, the baseline, or the epoch of DDLPO."""

    table: Table
    where: str
    policy: str
    who: str
    published: Figure
    ours: Mean
    mark: str
    lift: Lift | None = None
    of_bound: float = math.nan
    of_informed: float = math.nan
    bound: float = math.inf

    @property
    def above_bound(self) -> bool:
        """Whether the published figure is above what any policy can reach in expectation."""
        return self.published.corrected > self.bound

    @property
    def reaches(self) -> bool:
        """Whether our reward is at least the published one. If that is above the bound, whether
        ours is at least 99 % of the informed policy's reward."""
        if self.above_bound:
            return self.of_informed >= 0.99
        return self.ours.value >= self.published.corrected


def compare_cells(table: Table, results: Results, noise: Noise) -> list[CellComparison]:
    """Every published cell of a table, for every recipe and every shown epoch of DDLPO."""
    found = []
    for section, row, i in _published(table):
        setting, published = row.settings[i], row.published[i]
        assert published is not None
        factor = noise.of_level(setting.domain)
        for who, rewards in rewards_of(row, setting, results).items():
            cell = CellComparison(
                table, _where(section, row, table.columns[i]), row.policy, who, published,
                ours := Mean.of(rewards), pair_of(published, ours).mark(factor),
            )  # fmt: skip
            if row.policy != "ddlpo":
                lift = lift_of(results, section, i, published, rewards, noise)
                cell = dataclasses.replace(cell, lift=lift)
            found.append(_bounded(cell, setting, results, factor))
    return found


def rewards_of(row: Row, setting: Setting, results: Results) -> dict[str, np.ndarray]:
    """The rewards (seed, trial) of each recipe, baseline or epoch of DDLPO in a row."""
    if row.policy == "ddlpo":
        found = {}
        for at in topline_settings(setting):
            name = "with features" if at.features else "without features"
            rewards = results.topline(at)
            found |= {f"{name}, {epoch} epoch": rewards[epoch] for epoch in EPOCHS_SHOWN}
        return found
    who = results.recipes if row.policy == "prefermab" else (row.policy,)
    return {name: results.rewards(name, setting) for name in who}


def pair_of(published: Figure, ours: Mean) -> Pair:
    """The published mean and ours, with their errors."""
    return Pair(published.corrected, published.stderr, ours.value, ours.stderr)


def lift_of(
    results: Results,
    section: Section,
    column: int,
    published: Figure,
    rewards: np.ndarray,
    noise: Noise,
) -> Lift | None:
    """The reward over No Action in the same column; ours on the same trials."""
    no_action = next((row for row in section.rows if row.policy == "none"), None)
    baseline = None if no_action is None else no_action.published[column]
    if no_action is None or baseline is None:
        return None
    setting = no_action.settings[column]
    ours = Mean.of(rewards - results.rewards("none", setting))
    gain = published.corrected - baseline.corrected
    pair = Pair(gain, math.hypot(published.stderr, baseline.stderr), ours.value, ours.stderr)
    return Lift(pair, pair.mark(noise.of_lift(setting.domain)))


def fit_noise(tables: Sequence[Table], results: Results) -> Noise:
    """The factors fitted to all baseline cells of these tables; a repeated setting counts once."""
    level: dict[tuple[object, ...], tuple[str, Pair]] = {}
    lift: dict[tuple[object, ...], tuple[str, Pair]] = {}
    for table in tables:
        for section, row, i in _published(table):
            setting, published = row.settings[i], row.published[i]
            if row.policy not in BASELINES or published is None:
                continue
            name = row.policy, untrained(setting), published
            rewards = results.rewards(row.policy, setting)
            level[name] = setting.domain, pair_of(published, Mean.of(rewards))
            gained = lift_of(results, section, i, published, rewards, Noise())
            if row.policy == "random" and gained is not None:
                lift[name] = setting.domain, gained.pair
    return Noise(_by_domain(level.values()), _by_domain(lift.values()))


def _by_domain(found: Iterable[tuple[str, Pair]]):
    listed = list(found)
    domains = dict.fromkeys(domain for domain, _ in listed)
    return {name: fit_factor([pair for at, pair in listed if at == name]) for name in domains}


def _bounded(
    cell: CellComparison, setting: Setting, results: Results, factor: float
) -> CellComparison:
    """The cell; for a model, with its shares of the bound and of the informed policy."""
    if cell.policy != "prefermab":
        return cell
    bound, informed = results.bound(setting), results.informed(setting)
    limit = float(bound.mean())
    return dataclasses.replace(
        cell,
        mark=pair_of(cell.published, cell.ours).mark(factor, limit),
        of_bound=results.share(cell.who, setting, bound),
        of_informed=results.share(cell.who, setting, informed),
        bound=limit,
    )


def _published(table: Table) -> Iterator[tuple[Section, Row, int]]:
    """The section, row and column of every cell that has a published figure."""
    for section in table.sections:
        for row in section.rows:
            for i, figure in enumerate(row.published):
                if figure is not None:
                    yield section, row, i


def _where(section: Section, row: Row, column: str) -> str:
    if row.policy in BASELINES:
        return f"{section.title}, {column}"
    variant = row.title.removeprefix("PreFeRMAB").removeprefix("DDLPO").removeprefix(", ")
    variant = variant.strip() if variant.strip() != "(topline)" else ""
    return ", ".join(part for part in (section.title, variant, column) if part)
