"""The protocol of a trial: who is in which arm, and how the trial will be analysed, fixed
beforehand.

A protocol is a JSON file and a page. It has the seed of the lots, a checksum of the assignment, and
a checksum of itself, so that anybody can draw the lots again and see that nothing was changed
since.
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

from prefermab.errors import InputError, StorageError, count
from prefermab.files import write_atomically
from prefermab.pages import Block, Bullets, Cell, Grid, Heading, Text, as_html
from prefermab.programme.columns import as_numbers, check_ids, column
from prefermab.programme.evidence.designs import BY_CLUSTER, Design, Layout, draw_layout
from prefermab.programme.evidence.intervals import LEVEL
from prefermab.programme.tables import as_frame, format_people, write_table

MODEL, CONTROL = "model", "control"
"""The names of the arms."""

PROTOCOL, ASSIGNMENT = "protocol.json", "assignment.csv"


@dataclasses.dataclass(frozen=True, eq=False)
class Protocol:
    """A trial as it was fixed: `facts` is what protocol.json holds, `assignment` a row for each
    person (id, cluster, arm, `starts`) or, in a switchback, for each round."""

    facts: dict[str, Any]
    assignment: pl.DataFrame

    @property
    def design(self) -> Design:
        """The design."""
        given = self.facts["design"]
        return Design(given["name"], given["rounds"], given["block"], given["washout"])

    @property
    def checksum(self) -> str:
        """Of everything that the protocol fixes."""
        return _checksum({name: x for name, x in self.facts.items() if name != "checksum"})

    @property
    def layout(self) -> Layout:
        """The assignment as arrays, drawn again from the seed."""
        return _drawn(self.design, self.facts["units"], self.facts["seed"])

    def write(self, folder: str | Path) -> None:
        """Writes protocol.json, assignment.csv and index.html into a folder.

        Args:
            folder: Where to; a protocol that is there is not replaced.
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
        told = ", ".join(f"{name} {value:g}" for name, value in analysis["rewards"].items())
        rewards = f" ({told})" if told else ""
        return [
            Text(
                f"Design: **{design.name}**, {format_people(facts['people'])}, {design.rounds} "
                f"rounds. {drawn.capitalize()} were assigned by lot to the arm `{MODEL}`, for "
                f"which the model chooses, and the arm `{CONTROL}` ({facts['control']})."
            ),
            Heading("Fixed beforehand"),
            Bullets(
                [
                    f"Outcome: {analysis['outcome']}{rewards}.",
                    f"Estimator that counts: {analysis['primary']}; others are shown beside it.",
                    f"A gain is shown if the whole {analysis['level']:.0%} interval is above 0.",
                    "Everybody counts in the arm that they were assigned to (intention to treat), "
                    "also if they left or the list was not followed.",
                    f"Groups: {', '.join(analysis['groups']) or 'none'}.",
                    f"Seed of the lots: {facts['seed']}. Checksum of the assignment: "
                    f"`{facts['assignment']}`. Checksum of this protocol: `{facts['checksum']}`.",
                ]
            ),
            Heading("Balance"),
            Text(
                "Means and shares in both arms; the difference is in standard deviations. Lots "
                f"alone give differences of about {np.sqrt(4 / facts['people']):.2f}."
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
        people: A frame with `id` and the columns that are named.
        design: The design.
        balance: Columns in which the arms are to be alike: strata of a stratified design, pairs of
            clusters by their means in a cluster design; in others they are only checked.
        groups: Columns for which effects are shown by group.
        cluster: Column of the clusters, for designs that need them.
        control: What the other arm does, in words.
        rewards: The reward of each state, by which outcomes are counted.
        seed: Seed of the lots; a new one if None.
        where: What messages call the table.

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
    ids = column(table, "id", where)
    check_ids(ids, where)
    if table.height < 8:
        raise InputError(f"{where}: a trial needs 8 people or more, but there are {table.height}.")
    seed = secrets.randbits(32) if seed is None else count(seed, "seed", at_least=0)
    named = [column(table, name, where).name for name in (*balance, *groups)]
    units = _units(table, design, list(balance), cluster, where)
    layout = _drawn(design, units, seed)
    assignment = _assignment(table, ids, design, layout, units, named)
    primary = {"individual": "reshuffled", "stratified": "reshuffled"}.get(design.name, design.name)
    facts: dict[str, Any] = {
        "design": dataclasses.asdict(design),
        "people": table.height,
        "control": control,
        "units": units,
        "seed": seed,
        "balance": _balance_rows(table, assignment, list(dict.fromkeys(balance))),
        "analysis": {
            "outcome": "mean reward per person and round, from the state after each round",
            "rewards": {name: float(value) for name, value in (rewards or {}).items()},
            "primary": f"{primary} (difference, where the model's index is not known)"
            if primary == "reshuffled"
            else primary,
            "level": LEVEL,
            "groups": list(groups),
        },
        "assignment": frame_checksum(assignment),
    }
    facts["checksum"] = _checksum(facts)
    return Protocol(facts, assignment)


def read_protocol(folder: str | Path) -> Protocol:
    """A protocol as it was written; refused if it, or the assignment, was changed since.

    Args:
        folder: Where `Protocol.write` stored it.

    Returns:
        The protocol.

    Example::

        protocol = pm.evidence.read_protocol("trial")
    """
    place = Path(folder)
    try:
        facts = json.loads((place / PROTOCOL).read_text())
        assignment = pl.read_csv(place / ASSIGNMENT)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise StorageError(f"{place} holds no protocol that can be read: {error}.") from None
    found = Protocol(facts, assignment)
    if found.checksum != facts.get("checksum"):
        raise InputError(f"{place / PROTOCOL} was changed after it was written: checksums differ.")
    if frame_checksum(assignment) != facts["assignment"]:
        raise InputError(f"{place / ASSIGNMENT} is not the assignment that the protocol fixed.")
    return found


def frame_checksum(frame: pl.DataFrame) -> str:
    """Of the cells of a frame, as text."""
    rows = [[None if x is None else str(x) for x in row] for row in frame.iter_rows()]
    return _checksum([frame.columns, rows])


def _checksum(what: Any) -> str:
    text = json.dumps(what, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _units(
    table: pl.DataFrame, design: Design, balance: list[str], cluster: str | None, where: str
) -> dict[str, Any]:
    """Which unit each person is in, and which stratum each unit, as lists of numbers."""
    if design.name in BY_CLUSTER:
        if cluster is None:
            raise InputError(f"a {design.name} design needs the column of the clusters (cluster).")
        names = column(table, cluster, where).cast(pl.String).fill_null("")
        known = sorted(names.unique().to_list())
        if len(known) < 4:
            raise InputError(f"{where}: a trial needs 4 clusters or more, not {len(known)}.")
        unit = [known.index(name) for name in names.to_list()]
        stratum = _pairs(table, unit, len(known), balance, where) if (
            design.name == "cluster" and balance
        ) else [0] * len(known)  # fmt: skip
        return {"unit": unit, "stratum": stratum, "names": known}
    unit, stratum = list(range(table.height)), [0] * table.height
    if design.name == "stratified":
        if not balance:
            raise InputError(
                "a stratified design needs columns that the arms are alike in (balance)."
            )
        labels = pl.DataFrame([_levels(column(table, name, where)) for name in balance])
        keys = labels.select(pl.concat_str(pl.all(), separator="|")).to_series()
        stratum = (keys.rank("dense") - 1).cast(pl.Int64).to_list()
    return {"unit": unit, "stratum": stratum, "names": []}


def _levels(values: pl.Series) -> pl.Series:
    """A column as labels: numbers with many values in thirds."""
    if values.dtype.is_numeric() and values.n_unique() > 5:
        place = values.rank("ordinal").fill_null(0)
        return ((place - 1) * 3 // len(values)).cast(pl.String).fill_null("").alias(values.name)
    return values.cast(pl.String).fill_null("").alias(values.name)


def _pairs(
    table: pl.DataFrame, unit: list[int], size: int, balance: list[str], where: str
) -> list[int]:
    """Pairs of clusters that are alike in the first column, the rest in the order of the table."""
    values = as_numbers(_numeric(column(table, balance[0], where)), where).fill_null(0).to_numpy()
    mean = np.bincount(unit, values, size) / np.bincount(unit, minlength=size)
    return (np.argsort(np.argsort(mean, kind="stable"), kind="stable") // 2).tolist()


def _numeric(values: pl.Series) -> pl.Series:
    return values if values.dtype.is_numeric() else values.cast(pl.String).rank("dense")


def _drawn(design: Design, units: Mapping[str, Any], seed: int) -> Layout:
    unit, stratum = np.array(units["unit"]), np.array(units["stratum"])
    return draw_layout(design, unit, stratum, np.random.Generator(np.random.PCG64(seed)))


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


def _balance_rows(
    table: pl.DataFrame, assignment: pl.DataFrame, columns: list[str]
) -> list[list[str]]:
    """What differs between the arms, as text."""
    if "arm" not in assignment.columns or "id" not in assignment.columns:
        return []
    model = (assignment["arm"] == MODEL).to_numpy()
    rows = [["people", f"{model.sum():,}", f"{(~model).sum():,}", ""]]
    for name in columns:
        values = table[name]
        parts = {name: values.cast(pl.Float64)} if values.dtype.is_numeric() else {
            f"{name} {level}": (values.cast(pl.String) == level).cast(pl.Float64)
            for level in sorted(values.cast(pl.String).drop_nulls().unique().to_list())[:12]
        }  # fmt: skip
        for what, numbers in parts.items():
            known = numbers.is_not_null().to_numpy()
            cells = numbers.fill_null(0).to_numpy()
            own, other = cells[model & known], cells[~model & known]
            if not (len(own) and len(other)):
                continue
            spread = np.sqrt((own.var() + other.var()) / 2)
            apart = (own.mean() - other.mean()) / spread if spread > 0 else 0.0
            rows.append([what, f"{own.mean():.3f}", f"{other.mean():.3f}", f"{apart:+.2f}"])
    return rows
