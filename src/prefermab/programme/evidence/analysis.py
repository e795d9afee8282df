"""The analysis of a trial that its protocol fixed: intention-to-treat effects, the flow of
participants, attrition, and a test for sample ratio mismatch.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
from scipy.stats import binomtest, fisher_exact

from prefermab.common.intervals import Interval
from prefermab.common.pages import Block, Bullets, Cell, Grid, Heading, Text
from prefermab.errors import InputError
from prefermab.models.model import Model
from prefermab.programme.evidence.designs import (
    BY_CLUSTER,
    BY_PERSON,
    Layout,
    estimate_trial_effects,
)
from prefermab.programme.evidence.effects import FOLLOWED, TrialArm, follows_index, group_difference
from prefermab.programme.evidence.protocol import CONTROL, MODEL, Protocol
from prefermab.programme.evidence.results import Finding
from prefermab.programme.evidence.trial_logs import arrange_by_person, read_outcomes
from prefermab.programme.tables.table import as_frame, format_people

SUSPICIOUS = 0.001
"""p-value of the sample ratio below which the assignment was probably not followed."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrialResult(Finding):
    """The result of a trial.

    `effects` has an interval for each estimator, in reward per person and round; the first is the
    primary estimator. `flow` counts people by arm. `ratio` is the p-value of the numbers of people
    in the arms (binomial test for sample ratio mismatch). `lost` is the p-value of the difference
    between the arms in people lost to follow-up (Fisher's exact test). `groups` has the effect
    within each group. `strangers` counts people in the log who were never assigned.
    """

    title: ClassVar[str] = "What the trial shows"
    file: ClassVar[str] = "trial.json"

    protocol: Protocol
    effects: dict[str, Interval]
    flow: pl.DataFrame
    ratio: float | None
    lost: float | None
    groups: pl.DataFrame
    strangers: int
    followed: float | None = None
    """Share of the model's actions that went to the people with the highest index; None if
    unknown."""
    several: bool = False
    """Whether there were several actions besides the passive one."""

    @property
    def primary(self) -> str:
        """The name of the primary estimator."""
        return next(iter(self.effects))

    @property
    def effect(self) -> Interval:
        """The effect by the primary estimator."""
        return self.effects[self.primary]

    @property
    def shown(self) -> bool:
        """Whether a gain is shown: the whole interval is above 0, and there is no sample ratio
        mismatch."""
        return self.effect.shown and not self._broken

    @property
    def _broken(self) -> bool:
        return self.ratio is not None and self.ratio < SUSPICIOUS

    def lines(self) -> list[str]:
        """The result in sentences, the most important first."""
        effect = self.effect
        measured = (
            f"{effect.estimate:+.4g} reward per person and round (90 % interval {effect.low:+.4g} "
            f"to {effect.high:+.4g}, {self.primary})"
        )
        if self._broken:
            first = (
                "The trial cannot be read: the numbers of people in the arms do not agree with the "
                f"assignment (p = {self.ratio:.1g}). Taken at face value: {measured}."
            )
        elif effect.shown:
            first = f"A gain is shown: {measured}."
        elif effect.high < 0:
            first = f"The model does harm: {measured}."
        else:
            first = f"No gain is shown: {measured}."
        lines = [first]
        if self.lost is not None and self.lost < 0.05:
            lines.append(
                f"More people were lost in one arm than in the other (p = {self.lost:.2g}): the "
                "effect may come from who was lost."
            )
        if self.strangers:
            lines.append(
                f"{format_people(self.strangers)} in the log were never assigned and are left out."
            )
        if self.several and self.protocol.design.name in BY_PERSON:
            lines.append(
                "There were several actions, so that people cannot be exchanged between arms: the "
                "plain difference counts."
            )
        elif self.followed is not None and self.followed < FOLLOWED:
            lines.append(
                f"Only {self.followed:.0%} of the model's actions went to the people with the "
                "highest index (lots, rules or changes by staff): people cannot be exchanged "
                "between arms, so that the plain difference counts."
            )
        return lines

    def figures(self) -> dict[str, Any]:
        """The figures by name, as JSON values."""
        return {
            "shown": self.shown,
            "design": self.protocol.design.name,
            "primary": self.primary,
            "effects": {name: one.as_data() for name, one in self.effects.items()},
            "sample_ratio": self.ratio,
            "attrition": self.lost,
            "flow": self.flow.to_dicts(),
            "groups": self.groups.to_dicts(),
            "protocol": self.protocol.facts["checksum"],
        }

    def blocks(self) -> list[Block]:
        """The page, in the order of a CONSORT report."""
        cells = lambda frame: [[Cell(str(x)) for x in row] for row in frame.iter_rows()]  # noqa: E731
        ratio = "not applicable" if self.ratio is None else f"p = {self.ratio:.3g}"
        lost = "not applicable" if self.lost is None else f"p = {self.lost:.3g}"
        facts, design = self.protocol.facts, self.protocol.design
        notes = {
            "t-test": "as if people were independent, which a shared budget makes wrong",
            "subgroup": "mean effect in the next round on the people whom the model chose first",
        }
        rows = [
            [Cell(name, strong=name == self.primary), Cell(f"{one.estimate:+.4f}"),
             Cell(f"{one.low:+.4f} to {one.high:+.4f}"), Cell(notes.get(name, ""))]
            for name, one in self.effects.items()
        ]  # fmt: skip
        groups: list[Block] = []
        if self.groups.height:
            shown = [
                [Cell(f"{r['column']} {r['group']}"), Cell(f"{r['people']:,}"),
                 Cell(f"{r['effect']:+.4f}"), Cell(f"{r['low']:+.4f} to {r['high']:+.4f}")]
                for r in self.groups.iter_rows(named=True)
            ]  # fmt: skip
            groups = [
                Heading("Effect by group"),
                Text(
                    "The intervals are not corrected for the number of groups: of twenty, about "
                    "two miss the true effect by chance."
                ),
                Grid(["group", "people", "effect", "90 % interval"], shown),
            ]
        return [
            *(Text(line) for line in self.lines()),
            Heading("Design"),
            Text(
                f"{design.name.capitalize()}, {design.rounds} rounds; control: {facts['control']}. "
                f"Outcome: {facts['analysis']['outcome']}. Fixed beforehand in the protocol with "
                f"the checksum `{facts['checksum']}`; random seed {facts['seed']}."
            ),
            Heading("Flow of participants"),
            Grid(self.flow.columns, cells(self.flow)),
            Bullets([f"Sample ratio: {ratio}", f"Difference in people lost: {lost}"]),
            Heading("Effect"),
            Text(
                "Reward per person and round, model less control, everybody in the arm that they "
                "were assigned to (intention to treat)."
            ),
            Grid(["estimator", "effect", "90 % interval", ""], rows),
            *groups,
            Heading("Balance at the start"),
            Grid(["", MODEL, CONTROL, "difference"],
                 [[Cell(str(x)) for x in row] for row in facts["balance"]]),
        ]  # fmt: skip


def analyse(
    protocol: Protocol,
    log: Any,
    *,
    model: Model | None = None,
    rewards: Mapping[str, float] | None = None,
    passive: str = "none",
    where: str = "the log",
) -> TrialResult:
    """Analyses a trial as its protocol says.

    Args:
        protocol: The protocol, as `read_protocol` gives it.
        log: A frame with `id`, `time`, `state` and `action`, all arms together: a row for each
            person and round, and the states of one round more. A column `index` may hold the
            model's index (the `price` of a list), and a column `cost` the cost of the action.
        model: The model. It is used for the index if the log has no column for it (then the log
            must have the model's features), and for the costs of actions.
        rewards: The reward of each state; those of the protocol if left out.
        passive: The action that means doing nothing.
        where: The name of the log in messages.

    Returns:
        The result; `report(folder)` writes the page.

    Example::

        protocol = pm.evidence.read_protocol("trial")
        found = pm.evidence.analyse(protocol, pl.read_csv("log.csv"), model=pm.load("mine"))
        print(found)
        found.report("trial/report")
    """
    fixed = protocol.facts["analysis"]["rewards"]
    given = {name: float(value) for name, value in (rewards or fixed).items()}
    if not given:
        raise InputError("rewards must be given: the protocol has none.")
    if fixed and given != fixed:
        raise InputError("the rewards differ from those that the protocol fixed: leave them out.")
    rows, strangers = read_outcomes(protocol, as_frame(log), given, passive, model, where)
    people, known, layout = arrange_by_person(protocol, rows, where)
    here = np.asarray(known.any(axis=1))
    kept = dataclasses.replace(layout, unit=layout.unit[here])
    indexed, followed = not np.isnan(people.index).any(), None
    several = rows.filter("acted")["action"].n_unique() > 1
    if indexed and protocol.design.name in BY_PERSON:
        followed = follows_index(people.where(here & layout.by_model[:, 0]))
        indexed = followed >= FOLLOWED and not several
    found = estimate_trial_effects(protocol.design, kept, people.where(here), indexed)
    flow, ratio, lost = _flow(protocol, layout, people, known)
    groups = _groups(protocol, layout, people, here)
    return TrialResult(protocol, found, flow, ratio, lost, groups, strangers, followed, several)


def _flow(
    protocol: Protocol, layout: Layout, people: TrialArm, known: np.ndarray
) -> tuple[pl.DataFrame, float | None, float | None]:
    """Numbers of people by arm, the p-value of these numbers, and that of the difference in people
    lost."""
    here, whole = known.any(axis=1), known[:, -1]
    if protocol.design.name in ("switchback", "stepped wedge"):
        columns = {"everybody": np.ones(len(known), bool)}
    else:
        model = layout.by_model[:, 0]
        columns = {MODEL: model, CONTROL: ~model}
    steps = {
        "assigned": np.ones(len(known), bool),
        "acted on at least once": people.acted.any(axis=1),
        "lost before the end": ~whole,
        "without any outcome": ~here,
        "analysed": here,
    }
    rows = [
        [what, *(f"{int((which & inside).sum()):,}" for inside in columns.values())]
        for what, which in steps.items()
    ]
    flow = pl.DataFrame(rows, schema=["people", *columns], orient="row")
    if len(columns) == 1:
        return flow, None, None
    model = columns[MODEL]
    drawn = float(model.mean())
    ratio = float(binomtest(int((model & here).sum()), int(here.sum()), drawn).pvalue)
    table = [[int((one & ~whole).sum()), int((one & whole).sum())] for one in columns.values()]
    return flow, ratio, float(np.asarray(fisher_exact(table))[1])


def _groups(protocol: Protocol, layout: Layout, people: TrialArm, here: np.ndarray) -> pl.DataFrame:
    """The effect within each group with at least 8 people in each arm; no rows for a switchback and
    a stepped wedge."""
    schema = {"column": pl.String, "group": pl.String, "people": pl.Int64, "effect": pl.Float64,
              "low": pl.Float64, "high": pl.Float64}  # fmt: skip
    rows, design = [], protocol.design
    if design.name in ("switchback", "stepped wedge"):
        return pl.DataFrame(schema=schema)
    model, rounds = layout.by_model[:, 0], design.rounds
    for name in protocol.facts["analysis"]["groups"]:
        labels = protocol.assignment[name].cast(pl.String).fill_null("unknown")
        for label in sorted(labels.unique().to_list()):
            inside = (labels == label).to_numpy() & here
            sizes = int((inside & model).sum()), int((inside & ~model).sum())
            if min(sizes) < 8:
                continue
            unit = layout.unit if design.name in BY_CLUSTER else None
            found = group_difference(people, model, inside, here, unit)
            rows.append((name, label, sum(sizes), *(x / rounds for x in
                         (found.estimate, found.low, found.high))))  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")
