"""The protocol of a trial: the assignment to arms and the analysis, fixed before the trial starts.

A protocol is a JSON file, a table of the assignment, and a page. It contains the random seed, a
checksum of the assignment, and a checksum of itself, so that anybody can repeat the randomisation
and check that nothing was changed afterwards.
"""

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.common.files import UNREADABLE, write_atomically
from prefermab.common.intervals import LEVEL
from prefermab.common.pages import Block, Bullets, Cell, Grid, Heading, Text, as_html
from prefermab.errors import InputError, StorageError, brief, count
from prefermab.programme.evidence.balance import (
    ASSIGNMENTS_DRAWN,
    ASSIGNMENTS_KEPT,
    CONTROL,
    MODEL,
    balance_rows,
    balanced_draw,
    find_units,
)
from prefermab.programme.evidence.designs import BY_CLUSTER, Design, Layout, draw_layout
from prefermab.programme.tables.columns import id_column, named_column
from prefermab.programme.tables.table import as_frame, format_people, write_table

PROTOCOL, ASSIGNMENT = "protocol.json", "assignment.csv"

CONTROL_IN_WORDS = {
    "none": "in which nobody is acted on",
    "random": "in which as much is done for people at random",
}
"""What happens in the control arm, in words."""


@dataclasses.dataclass(frozen=True, eq=False)
class Protocol:
    """The protocol of a trial: `facts` is the content of protocol.json, `assignment` has a row for
    each person (id, cluster, arm, `starts`) or, in a switchback, for each round."""

    facts: dict[str, Any]
    assignment: pl.DataFrame

    @property
    def design(self) -> Design:
        """The design."""
        given = self.facts["design"]
        return Design(given["name"], given["rounds"], given["block"], given["washout"])

    @property
    def checksum(self) -> str:
        """SHA-256 of all facts but the stored checksum."""
        return _checksum({name: x for name, x in self.facts.items() if name != "checksum"})

    @property
    def layout(self) -> Layout:
        """The assignment as arrays, computed again from the seed."""
        return assigned_layout(self.design, self.facts["units"], self.facts["seed"])

    def write(self, folder: str | Path) -> None:
        """Writes protocol.json, assignment.csv and index.html into a folder.

        Args:
            folder: The folder; an existing protocol is not replaced.
        """
        place = Path(folder)
        if (place / PROTOCOL).exists():
            raise InputError(f"{place} holds a protocol already: a trial is randomised once.")
        write_table(self.assignment, place / ASSIGNMENT)
        page = as_html("Protocol of the trial", self.blocks())
        write_atomically(place / "index.html", lambda draft: draft.write_text(page))
        text = json.dumps(self.facts, indent=1)
        write_atomically(place / PROTOCOL, lambda draft: draft.write_text(text))

    def blocks(self) -> list[Block]:
        """The page."""
        facts, design = self.facts, self.design
        what = {
            "cluster": "clusters",
            "stepped wedge": "clusters",
            "switchback": "blocks of rounds",
        }
        drawn = what.get(design.name, "people")
        rows = [[Cell(str(x)) for x in row] for row in facts["balance"]]
        analysis = facts["analysis"]
        values = ", ".join(f"{name} {value:g}" for name, value in analysis["rewards"].items())
        rewards = f" ({values})" if values else ""
        in_control = CONTROL_IN_WORDS.get(facts["control"], f"which gets: {facts['control']}")
        return [
            Text(
                f"Design: **{design.name}**, {format_people(facts['people'])}, {design.rounds} "
                f"rounds. {drawn.capitalize()} were assigned by lot to the arm `{MODEL}`, for "
                f"which the model chooses, and the arm `{CONTROL}`, {in_control}."
            ),
            Heading("Fixed beforehand"),
            Bullets(
                [
                    f"Outcome: {analysis['outcome']}{rewards}.",
                    f"Primary estimator: {analysis['primary']}; others are shown beside it.",
                    f"A gain is shown if the whole {analysis['level']:.0%} interval is above 0.",
                    "Everybody counts in the arm that they were assigned to (intention to treat), "
                    "also people who left or for whom the list was not followed.",
                    f"Groups: {', '.join(analysis['groups']) or 'none'}.",
                    f"Balanced: {analysis.get('balanced', 'nothing')}.",
                    f"Random seed: {facts['seed']}.",
                    f"Checksum of the assignment: `{facts['assignment']}`.",
                    f"Checksum of this protocol: `{facts['checksum']}`.",
                ]
            ),
            Heading("Balance"),
            Text(
                "Means and shares in both arms; the difference is in standard deviations. By "
                f"chance alone, differences are about {np.sqrt(4 / facts['people']):.2f}."
            ),
            Grid(["", MODEL, CONTROL, "difference"], rows),
        ]


def randomise(
    people: Any,
    design: Design,
    *,
    balance: Sequence[str] = (),
    groups: Sequence[str] = (),
    cluster: str | None = None,
    control: str = "none",
    rewards: Mapping[str, float] | None = None,
    seed: int | None = None,
    where: str = "the table",
) -> Protocol:
    """Assigns people, clusters or rounds to the arms of a trial, and fixes its analysis.

    Args:
        people: A frame with `id` and the named columns.
        design: The design.
        balance: Columns in which the arms are balanced. Individual design: rerandomisation, with
            adjustment by regression in the analysis. Stratified design: the strata. Cluster
            design: pairs of clusters with similar means. Other designs raise an error.
        groups: Columns for which the report has effects by group.
        cluster: Column of the clusters, for designs that need them.
        control: What happens in the control arm, in words.
        rewards: The reward of each state; outcomes are rewards.
        seed: Random seed; a new one if None.
        where: The name of the table in messages.

    Returns:
        The protocol; `write(folder)` stores it.

    >>> import polars as pl
    >>> from prefermab.programme.evidence.designs import Design
    >>> from prefermab.programme.evidence.protocol import randomise
    >>> people = pl.DataFrame({"id": range(8), "region": ["north", "south"] * 4})
    >>> made = randomise(people, Design("stratified", 4), balance=["region"], seed=3)
    >>> made.assignment.group_by("region", "arm").len().get_column("len").to_list()
    [2, 2, 2, 2]
    """
    table = as_frame(people)
    ids = id_column(table, where)
    if table.height < 8:
        raise InputError(f"{where}: a trial needs 8 people or more, but there are {table.height}.")
    seed = secrets.randbits(32) if seed is None else count(seed, "seed", at_least=0)
    named = [named_column(table, name, where).name for name in (*balance, *groups)]
    units = find_units(table, design, list(dict.fromkeys(balance)), cluster, where)
    if "columns" in units:
        units["draw"] = balanced_draw(design, units, seed)
    layout = assigned_layout(design, units, seed)
    assignment = _assignment(table, ids, design, layout, units, named)
    primary = {"individual": "reshuffled", "stratified": "reshuffled"}.get(design.name, design.name)
    facts: dict[str, Any] = {
        "design": dataclasses.asdict(design),
        "people": table.height,
        "control": control,
        "units": units,
        "seed": seed,
        "balance": balance_rows(table, assignment, list(dict.fromkeys(balance))),
        "analysis": {
            "outcome": "mean reward per person and round, from the state after each round",
            "rewards": {name: float(value) for name, value in (rewards or {}).items()},
            "primary": f"{primary} (difference, where the model's index is not known or not "
            "followed, or there are several actions)"
            if primary == "reshuffled"
            else primary,
            "level": LEVEL,
            "groups": list(groups),
            "balanced": _balanced_in_words(design, list(balance)),
        },
        "assignment": frame_checksum(assignment),
    }
    facts["checksum"] = _checksum(facts)
    return Protocol(facts, assignment)


def read_protocol(folder: str | Path) -> Protocol:
    """Reads a protocol. Raises an error if it, or the assignment, was changed after it was written.

    Args:
        folder: The folder that `Protocol.write` wrote.

    Returns:
        The protocol.

    Example::

        protocol = pm.evidence.read_protocol("trial")
    """
    place = Path(folder)
    try:
        facts = json.loads((place / PROTOCOL).read_text())
        assignment = pl.read_csv(place / ASSIGNMENT)
        checksum, assigned = facts.get("checksum"), facts.get("assignment")
    except (*UNREADABLE, AttributeError, RecursionError, ValueError) as error:
        why = " ".join(brief(error, 200).split())
        raise StorageError(f"{place} holds no protocol that can be read: {why}.") from None
    found = Protocol(facts, assignment)
    if found.checksum != checksum:
        raise InputError(f"{place / PROTOCOL} was changed after it was written: checksums differ.")
    if frame_checksum(assignment) != assigned:
        raise InputError(f"{place / ASSIGNMENT} is not the assignment that the protocol fixed.")
    return found


def frame_checksum(frame: pl.DataFrame) -> str:
    """SHA-256 of the column names and the cells of a frame, as text."""
    rows = [[None if x is None else str(x) for x in row] for row in frame.iter_rows()]
    return _checksum([frame.columns, rows])


def _checksum(what: Any) -> str:
    text = json.dumps(what, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def assigned_layout(design: Design, units: Mapping[str, Any], seed: int) -> Layout:
    """The layout for a seed and for units as `find_units` returns them."""
    unit, stratum = np.array(units["unit"]), np.array(units["stratum"])
    rng = np.random.Generator(np.random.PCG64(seed))
    for _ in range(units.get("draw", 0)):
        draw_layout(design, unit, stratum, rng)
    found = draw_layout(design, unit, stratum, rng)
    return dataclasses.replace(found, columns=np.array(units["columns"])) if (
        "columns" in units
    ) else found  # fmt: skip


def _balanced_in_words(design: Design, balance: list[str]) -> str:
    """How the arms were balanced, and how the analysis accounts for it."""
    named = ", ".join(balance)
    return {
        "individual": f"of {ASSIGNMENTS_DRAWN:,} draws one at random among the "
        f"{ASSIGNMENTS_KEPT} in which the arms differ least in {named} (Mahalanobis distance); the "
        "analysis takes off what they predict",
        "stratified": f"people were drawn within strata of {named}; errors are those within strata",
        "cluster": f"clusters were drawn in pairs alike in {named}; differences within pairs count",
    }[design.name] if balance else "nothing"  # fmt: skip


def _assignment(
    table: pl.DataFrame, ids: pl.Series, design: Design, layout: Layout, units: Mapping[str, Any],
    named: list[str],
) -> pl.DataFrame:  # fmt: skip
    """The rows of assignment.csv."""
    arm = lambda yes: MODEL if yes else CONTROL  # noqa: E731
    if design.name == "switchback":
        rounds = range(1, design.rounds + 1)
        return pl.DataFrame({"round": rounds, "arm": [arm(x) for x in layout.schedule[0]]})
    rest = table.select(list(dict.fromkeys(named))) if named else pl.DataFrame()
    found = [ids.alias("id")]
    if design.name in BY_CLUSTER:
        found.append(pl.Series("cluster", [units["names"][place] for place in units["unit"]]))
    by_model = layout.by_model
    if design.name == "stepped wedge":
        starts = np.where(by_model.any(axis=1), by_model.argmax(axis=1) + 1, 0)
        found.append(pl.Series("starts", starts))
    else:
        found.append(pl.Series("arm", [arm(x) for x in by_model[:, 0]]))
    taken = {series.name for series in found}
    return pl.DataFrame(found + [s for s in rest.get_columns() if s.name not in taken])
