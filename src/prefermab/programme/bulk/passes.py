"""The passes: functions that any process can call for one chunk of people.

A pass stores what later passes need in a file beside the plan, until the plan is finished.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

from prefermab.arms.amounts import add_up
from prefermab.common.files import write_atomically
from prefermab.errors import InputError
from prefermab.policies.learned import sample_rows
from prefermab.programme.bulk.chunks import (
    Chunk,
    Job,
    all_labels,
    needed_columns,
    planner,
    recode_labels,
    save_array,
    store_id_hashes,
)
from prefermab.programme.planning.constrained import Selection, choose_under_rules
from prefermab.programme.planning.increments import Cut, Increments
from prefermab.programme.planning.plan import with_given_columns
from prefermab.programme.planning.reasons import reasons
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.rules import IN
from prefermab.programme.planning.rules.limits import (
    Labels,
    Limits,
    labels_of,
    limits_alone,
    reasons_out,
    shared_limits,
)
from prefermab.programme.planning.rules.people import People
from prefermab.programme.planning.scoring import (
    RoundScores,
    best_actions,
    gains_at,
    locked_actions,
    positive_gains,
)
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import column


@dataclasses.dataclass(frozen=True)
class Report:
    """The counts of one chunk, for the summary and for checks of all chunks."""

    kept_out: dict[str, int]
    """How many people are kept out, by the reason."""
    locked: int
    locked_units: int
    """The cost of those who are locked in, in units of the budget."""
    incomplete: int
    unknown: dict[str, int]
    named: list[str]
    """Ids that rules name and that are in this chunk."""
    labels: list[list[str]]
    """For each rule that ties people together, the labels in this chunk."""
    outside_training: int = 0
    outside: dict[str, int] = dataclasses.field(default_factory=dict)
    states_read: dict[str, str] = dataclasses.field(default_factory=dict)


def read_chunk(
    job: Job, chunk: Chunk, frame: pl.DataFrame | None = None
) -> tuple[Roster, Limits, list[Labels], list[str]]:
    """Reads a chunk, or takes its rows in `frame`: the people as the model sees them, the rules
    about each person alone, the labels by which rules tie people together, and the ids that rules
    name and that are in it."""
    model, rules = planner(job), job.rules
    if frame is None:
        frame = chunk.read(needed_columns(model, rules, chunk.file))
    roster = read_roster(model, frame, chunk.where)
    wanted = [str(one) for ids in rules.ids().values() for one in ids]
    here: set[str] = set()
    if wanted:
        text = roster.ids.cast(pl.String)
        here = set(text.filter(text.is_in(wanted)).to_list())
    people = People(frame, roster.ids, roster.opt_in, model.action_names, chunk.where)
    return (
        roster, limits_alone(rules.about(here), people), labels_of(rules, people), sorted(here)
    )  # fmt: skip


def price_sample(job: Job, chunk: Chunk) -> list[np.ndarray]:
    """The states, features, permission to act and costs of a chunk's rows in the price sample."""
    rows = sample_rows(job.people)
    rows = rows[(rows >= chunk.start) & (rows < chunk.start + chunk.rows)] - chunk.start
    table = chunk.read(needed_columns(planner(job), job.rules, chunk.file))
    try:
        roster, limits, *_ = read_chunk(job, chunk, table[rows])
        rows = np.arange(rows.size)
    except InputError:
        # Read again as a whole, so that the message has the row's number.
        roster, limits, *_ = read_chunk(job, chunk, table)
    return [x[rows] for x in (roster.states, roster.features, limits.may, roster.costs)]


def score_chunk(job: Job, price: float, chunk: Chunk) -> Report:
    """Scores a chunk by the network and stores what later passes need, once for each chunk."""
    scores = job.scores_file(chunk)
    if scores.exists():
        with safe_open(scores, "np") as file:
            return Report(**json.loads(file.metadata()["report"]))
    model = planner(job)
    roster, limits, labels, named = read_chunk(job, chunk)
    raw = gains_at(model, roster.states, roster.features, price, wide=True)
    locked = locked_actions(
        RoundScores(price, positive_gains(model, raw)), roster.costs, limits.locked
    )
    arrays = {
        "raw": raw,
        "standing": limits.standing.astype(np.int8),
        "locked": locked.astype(np.int8),
        "outside": roster.outside.astype(np.int16),
        "costs": roster.costs[:1] if (roster.costs == roster.costs[:1]).all() else roster.costs,
    }
    if job.rules.about_groups:
        arrays |= {f"label {number}": codes for number, (codes, _) in enumerate(labels)}
    report = Report(
        kept_out={
            why: int((limits.standing == number).sum()) for number, why in reasons_out().items()
        },
        locked=int((locked > 0).sum()),
        locked_units=add_up(job.units.of_costs(paid(locked, roster.costs))),
        incomplete=roster.incomplete,
        unknown=roster.unknown,
        named=named,
        labels=[list(names) for _, names in labels],
        outside_training=roster.n_unlike,
        outside=roster.unlike,
        states_read=roster.states_read,
    )
    store_id_hashes(job, chunk, roster.ids)
    packed = pack(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()},
        metadata={"report": json.dumps(dataclasses.asdict(report))},
    )
    write_atomically(scores, lambda draft: draft.write_bytes(packed))
    return report


def answer_question(
    job: Job, question: Callable[..., Any], about: tuple[Any, ...], chunk: Chunk
) -> Any:
    """Calls a method of a chunk's `Increments`, and returns the answer."""
    return question(increments_of(job, chunk, load_scores(job, chunk)), *about)


@dataclasses.dataclass(frozen=True)
class Totals:
    """The totals of a choice of actions in one chunk, or in several."""

    counts: np.ndarray
    """How often each action is taken."""
    spent: int
    """In units."""
    gained: float
    gained_by_locked: float
    surplus: float
    """The most that all others can gain beyond the price of their actions. The price is the rate at
    which the budget ends, or the price of the round if actions were chosen for all chunks together.
    """

    def __add__(self, other: "Totals") -> "Totals":
        fields = (field.name for field in dataclasses.fields(self))
        return Totals(*(getattr(self, name) + getattr(other, name) for name in fields))


def choice_totals(job: Job, price: float, cuts: Sequence[Cut | None], chunk: Chunk) -> list[Totals]:
    """The totals of each choice in a chunk."""
    scores = load_scores(job, chunk)
    gains, costs, locked = (
        positive_gains(planner(job), scores["raw"]),
        scores["costs"],
        scores["locked"],
    )
    open = (scores["standing"] == IN) & (locked == 0)
    each, found = np.arange(chunk.rows), []
    for cut, actions in zip(cuts, actions_of(job, chunk, scores, cuts), strict=True):
        taken = gains[each, actions].astype(float)
        taken[np.isneginf(taken)] = 0.0
        rate = price if cut is None else cut.rate
        net = np.zeros(chunk.rows)
        for action in range(1, costs.shape[1]):
            net = np.maximum(net, gains[:, action] - rate * costs[:, action].astype(float))
        counts = np.bincount(actions, minlength=costs.shape[1])
        spent = add_up(job.units.of_costs(paid(actions, costs)))
        gained = float(taken.sum()), float(taken[locked > 0].sum())
        found.append(Totals(counts, spent, *gained, float(net[open].sum())))
    return found


def candidates(job: Job, chunk: Chunk) -> dict[str, np.ndarray]:
    """The people of a chunk who matter under shared limits: locked in, or with some gain."""
    scores = load_scores(job, chunk)
    gains = positive_gains(planner(job), scores["raw"])
    open = (scores["standing"] == IN) & (
        np.isfinite(gains[:, 1:]).any(axis=1) | (scores["locked"] > 0)
    )
    rows = np.flatnonzero(open)
    labels = [name for name in scores if name.startswith("label ")]
    arrays = {name: scores[name][rows] for name in ("costs", "locked", *labels)}
    return {"rows": rows + chunk.start, "gains": gains[rows], **arrays}


def write_part(job: Job, price: float, cut: Cut, chosen_together: bool, chunk: Chunk) -> None:
    """Writes a chunk of the plan, unless it is written already."""
    if job.part(chunk).exists():
        return
    model, scores, table = planner(job), load_scores(job, chunk), chunk.read()
    (actions,) = actions_of(job, chunk, scores, [None if chosen_together else cut])
    best = best_actions(
        RoundScores(price, positive_gains(planner(job), scores["raw"])), scores["costs"], actions
    )
    listed = (actions > 0).astype(int)
    for row in cut.waiting:
        if chunk.start <= row < chunk.start + chunk.rows:
            listed[row - chunk.start] = 2
    each = np.arange(chunk.rows)
    frame = pl.DataFrame(
        {
            "id": clean_ids(column(table, "id", chunk.shown)),
            "action": pl.Series(model.action_names, dtype=pl.String).gather(actions),
            "cost": paid(actions, scores["costs"]),
            "score": scores["raw"][each, best].astype(float),
            "list": pl.Series(["", "chosen", "waiting"]).gather(listed),
            "outside": scores["outside"].astype(int),
            "reason": listed_reasons(job, chunk, table, scores, price, best, listed > 0),
        }
    )
    write_atomically(job.part(chunk), with_given_columns(frame, table).write_parquet)


def listed_reasons(
    job: Job,
    chunk: Chunk,
    table: pl.DataFrame,
    scores: dict[str, np.ndarray],
    price: float,
    best: np.ndarray,
    on_list: np.ndarray,
) -> pl.Series:
    """The reasons of those on the list and of those who may not be acted on; null for the rest."""
    standing = pl.Series(scores["standing"])
    found = standing.replace_strict(reasons_out(), default=None, return_dtype=pl.String)
    rows = np.flatnonzero(on_list)
    if not job.reasons or not rows.size:
        return found
    model, some = planner(job), table[rows]
    roster = read_roster(model, some, chunk.where)
    text = reasons(
        model, roster, scores["standing"][rows], some, price, best[rows], scores["raw"][rows],
        scores["locked"][rows] > 0, wide=True,
    )  # fmt: skip
    return found.scatter(rows, text)


def load_scores(job: Job, chunk: Chunk) -> dict[str, np.ndarray]:
    """The arrays that `score_chunk` stored for a chunk."""
    scores = load_file(job.scores_file(chunk))
    scores["costs"] = np.broadcast_to(scores["costs"], scores["raw"].shape)
    return scores


def paid(actions: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The cost of each person's action."""
    return costs[np.arange(len(actions)), actions]


def increments_of(job: Job, chunk: Chunk, scores: dict[str, np.ndarray]) -> Increments:
    """The increments of those who may be acted on and are not locked in."""
    open = (scores["standing"] == IN) & (scores["locked"] == 0)
    gains = positive_gains(planner(job), scores["raw"])
    return Increments.of(gains, scores["costs"], open, job.units, chunk.start)


def actions_of(
    job: Job, chunk: Chunk, scores: dict[str, np.ndarray], cuts: Sequence[Cut | None]
) -> list[np.ndarray]:
    """Everyone's action for each cut; None means the actions chosen for all chunks together."""
    if None in cuts:
        return [np.load(job.actions(chunk)).astype(int)]
    increments, locked = increments_of(job, chunk, scores), scores["locked"].astype(int)
    return [np.where(locked > 0, locked, increments.chosen(cut)) for cut in cuts if cut is not None]


RunPass = Callable[[str, Callable[[Chunk], Any]], list[Any]]


def choose_together(
    job: Job, chunks: Sequence[Chunk], reports: Sequence[Report], run_pass: RunPass, waiting: int
) -> tuple[Cut, float]:
    """Chooses and stores everyone's action under shared limits. Returns a cut with the waiting
    list, and what one more unit of budget would gain."""
    parts = run_pass("choosing", functools.partial(candidates, job))
    labels = []
    for number in range(len(job.rules.tying)):
        names = all_labels(report.labels[number] for report in reports)
        codes = [
            recode_labels(part.pop(f"label {number}"), report.labels[number], names)
            for part, report in zip(parts, reports, strict=True)
        ]
        labels.append((np.concatenate(codes), names))
    people = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    gains, costs, locked = people["gains"], people["costs"], people["locked"].astype(int)
    # All of them may be acted on.
    standing = np.full(len(locked), IN)
    limits = Limits(standing, people["locked"], shared_limits(job.rules, labels))

    selection = Selection(gains, costs, job.budget, limits, locked, per_cost=True)
    actions = choose_under_rules(selection)
    for chunk in chunks:
        begin, end = np.searchsorted(people["rows"], (chunk.start, chunk.start + chunk.rows))
        chunk_actions = np.zeros(chunk.rows, np.int8)
        chunk_actions[people["rows"][begin:end] - chunk.start] = actions[begin:end]
        write_atomically(job.actions(chunk), functools.partial(save_array, array=chunk_actions))
    left = (actions == 0) & (locked == 0)
    increments = Increments.of(gains, costs, left, job.units)
    queue = increments.after(Cut(np.inf), 0, waiting)[-1]
    cut = Cut(waiting=tuple(people["rows"][queue].tolist()))
    richer = choose_under_rules(dataclasses.replace(selection, budget=job.budget + 1))
    return cut, selection.gained(richer) - selection.gained(actions)
