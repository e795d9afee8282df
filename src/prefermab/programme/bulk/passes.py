"""What is done to one piece of a roster: pure functions of plain data, wherever they run.

What a later pass needs of a piece is kept in a file beside the plan until the plan is done.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

from prefermab.errors import InputError
from prefermab.files import write_atomically
from prefermab.model import Model
from prefermab.policies.learned import sample
from prefermab.programme.bulk.pieces import Piece, needed
from prefermab.programme.planning.choices import best_actions, locked_actions, units
from prefermab.programme.planning.judging import gains_of, positive
from prefermab.programme.planning.limits import EXCLUDED, IN, OUT, RESTING, Limits, apply
from prefermab.programme.planning.plan import carried
from prefermab.programme.planning.reasons import KEPT_OUT, reasons
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.steps import Cut, Steps, unit_of
from prefermab.programme.tables import column
from prefermab.storage import load


@dataclasses.dataclass(frozen=True)
class Job:
    """What every piece has to know."""

    model: str
    rules: Rules
    budget: float
    people: int
    out: str
    reasons: bool

    @property
    def scratch(self) -> Path:
        """Where pieces keep what later passes need."""
        return Path(self.out) / ".unfinished"

    def kept(self, piece: Piece) -> Path:
        """What is known of a piece."""
        return self.scratch / f"piece-{piece.number:05}.safetensors"

    def ids(self, piece: Piece) -> Path:
        """Checksums of a piece's ids, in order."""
        return self.scratch / f"ids-{piece.number:05}.npy"

    def actions(self, piece: Piece) -> Path:
        """Actions that were chosen for all pieces at once."""
        return self.scratch / f"actions-{piece.number:05}.npy"

    def part(self, piece: Piece) -> Path:
        """A piece of the plan, until all are written."""
        return self.scratch / f"part-{piece.number:05}.parquet"


@dataclasses.dataclass(frozen=True)
class Report:
    """What is counted in a piece."""

    opted_out: int
    excluded: int
    resting: int
    locked: int
    locked_cost: float
    """In whole units."""
    incomplete: int
    unknown: dict[str, int]
    named: list[str]
    """Ids of the rules that are found here."""
    groups: list[str]
    workers: list[str]


@functools.cache
def model_of(name: str) -> Model:
    """The model, read once in a process."""
    return load(name)


def look(
    job: Job, piece: Piece, frame: pl.DataFrame | None = None
) -> tuple[Roster, Limits, list[str]]:
    """A piece, or some rows of it, as the model sees it, with the rules that concern each person
    alone, and the ids of the rules that are found in it."""
    model, rules = model_of(job.model), job.rules
    if frame is None:
        frame = piece.read(needed(model, rules, piece.file))
    roster = read_roster(model, frame, piece.where)
    wanted = [*map(str, (*rules.exclude_ids, *rules.lock_ids))]
    here: set[str] = set()
    if wanted:
        text = roster.ids.cast(pl.String)
        here = set(text.filter(text.is_in(wanted)).to_list())
    alone = dataclasses.replace(
        rules,
        exclude_ids=tuple(one for one in rules.exclude_ids if str(one) in here),
        lock_ids=tuple(one for one in rules.lock_ids if str(one) in here),
        min_share={}, max_share={}, budgets={},
    )  # fmt: skip
    return roster, apply(alone, model, roster, frame, piece.where), sorted(here)


def sampled(job: Job, piece: Piece) -> list[np.ndarray]:
    """States, features, who may be acted on and costs, of those rows that find the price."""
    rows = sample(job.people)
    rows = rows[(rows >= piece.start) & (rows < piece.start + piece.rows)] - piece.start
    table = piece.read(needed(model_of(job.model), job.rules, piece.file))
    try:
        roster, limits, _ = look(job, piece, table[rows])
        rows = np.arange(rows.size)
    except InputError:
        # Said again of the whole piece, for the row's number.
        roster, limits, _ = look(job, piece, table)
    return [x[rows] for x in (roster.states, roster.features, limits.may, roster.costs)]


def judge(job: Job, price: float, piece: Piece) -> Report:
    """Asks the network, and keeps what later passes need; a piece that is done stays done."""
    kept = job.kept(piece)
    if kept.exists():
        with safe_open(kept, "np") as file:
            return Report(**json.loads(file.metadata()["report"]))
    model = model_of(job.model)
    roster, limits, named = look(job, piece)
    raw = gains_of(model, roster.states, roster.features, price, wide=True)
    locked = locked_actions(positive(raw), roster.costs, price, limits.locked)
    arrays = {
        "raw": raw,
        "standing": limits.standing.astype(np.int8),
        "locked": locked.astype(np.int8),
        "costs": roster.costs[:1] if (roster.costs == roster.costs[:1]).all() else roster.costs,
    }
    if job.rules.about_groups:
        arrays |= {"group": limits.group, "worker": limits.worker}
    report = Report(
        opted_out=int((limits.standing == OUT).sum()),
        excluded=int((limits.standing == EXCLUDED).sum()),
        resting=int((limits.standing == RESTING).sum()),
        locked=int((locked > 0).sum()),
        locked_cost=units(locked, roster.costs, unit_of(job.budget)),
        incomplete=roster.incomplete,
        unknown=roster.unknown,
        named=named,
        groups=list(limits.group_names),
        workers=list(limits.worker_names),
    )
    keep_ids(job, piece, roster)
    packed = pack(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()},
        metadata={"report": json.dumps(dataclasses.asdict(report))},
    )
    write_atomically(kept, lambda draft: draft.write_bytes(packed))
    return report


def answer(job: Job, question: str, about: tuple[Any, ...], piece: Piece) -> Any:
    """What a method of a piece's steps says."""
    return getattr(steps_of(job, piece, kept_of(job, piece)), question)(*about)


def tally(job: Job, price: float, cuts: Sequence[Cut | None], piece: Piece) -> list[np.ndarray]:
    """For each choice, the numbers of each action, what is spent, what is gained, what is gained
    by those who are locked in, and what all others gain at most beyond what they pay at the rate
    where the choice ends, or at the going price."""
    kept = kept_of(job, piece)
    gains, costs, locked = positive(kept["raw"]), kept["costs"], kept["locked"]
    open = (kept["standing"] == IN) & (locked == 0)
    each, found = np.arange(piece.rows), []
    for cut, actions in zip(cuts, actions_of(job, piece, kept, cuts), strict=True):
        taken = gains[each, actions].astype(float)
        taken[np.isneginf(taken)] = 0.0
        cost = costs[each, actions].astype(float)
        rate = price if cut is None else cut.rate
        net = np.zeros(piece.rows)
        for action in range(1, costs.shape[1]):
            net = np.maximum(net, gains[:, action] - rate * costs[:, action].astype(float))
        most = net[open].sum()
        sums = cost.sum(), taken.sum(), taken[locked > 0].sum(), most
        found.append(np.array([*np.bincount(actions, minlength=costs.shape[1]), *sums]))
    return found


def candidates(job: Job, piece: Piece) -> dict[str, np.ndarray]:
    """Those of a piece whom a choice under shared limits concerns: locked in, or of some use."""
    kept = kept_of(job, piece)
    gains = positive(kept["raw"])
    open = (kept["standing"] == IN) & (np.isfinite(gains[:, 1:]).any(axis=1) | (kept["locked"] > 0))
    rows = np.flatnonzero(open)
    arrays = {name: kept[name][rows] for name in ("costs", "group", "worker", "locked")}
    return {"rows": rows + piece.start, "gains": gains[rows], **arrays}


def write(job: Job, price: float, cut: Cut, chosen_apart: bool, piece: Piece) -> None:
    """Writes a piece of the plan, unless it is there."""
    if job.part(piece).exists():
        return
    model, kept, table = model_of(job.model), kept_of(job, piece), piece.read()
    (actions,) = actions_of(job, piece, kept, [None if chosen_apart else cut])
    best = best_actions(positive(kept["raw"]), kept["costs"], price, actions)
    listed = (actions > 0).astype(int)
    for row in cut.waiting:
        if piece.start <= row < piece.start + piece.rows:
            listed[row - piece.start] = 2
    each = np.arange(piece.rows)
    frame = pl.DataFrame(
        {
            "id": column(table, "id", piece.shown),
            "action": pl.Series(model.action_names, dtype=pl.String).gather(actions),
            "cost": kept["costs"][each, actions].astype(float),
            "score": kept["raw"][each, best].astype(float),
            "list": pl.Series(["", "chosen", "waiting"]).gather(listed),
            "reason": told(job, piece, table, kept, price, best, listed > 0),
        }
    )
    write_atomically(job.part(piece), carried(frame, table).write_parquet)


def told(
    job: Job,
    piece: Piece,
    table: pl.DataFrame,
    kept: dict[str, np.ndarray],
    price: float,
    best: np.ndarray,
    on_list: np.ndarray,
) -> pl.Series:
    """Why those on the list are on it, and why others may not be; null for the rest."""
    standing = pl.Series(kept["standing"])
    found = standing.replace_strict(KEPT_OUT, default=None, return_dtype=pl.String)
    rows = np.flatnonzero(on_list)
    if not job.reasons or not rows.size:
        return found
    model, some = model_of(job.model), table[rows]
    roster = read_roster(model, some, piece.where)
    text = reasons(
        model, roster, kept["standing"][rows], some, price, best[rows], kept["raw"][rows],
        kept["locked"][rows] > 0, wide=True,
    )  # fmt: skip
    return found.scatter(rows, text)


def kept_of(job: Job, piece: Piece) -> dict[str, np.ndarray]:
    """What the first pass kept of a piece."""
    kept = load_file(job.kept(piece))
    kept["costs"] = np.broadcast_to(kept["costs"], kept["raw"].shape)
    return kept


def steps_of(job: Job, piece: Piece, kept: dict[str, np.ndarray]) -> Steps:
    """The steps of those who are open to be chosen."""
    open = (kept["standing"] == IN) & (kept["locked"] == 0)
    gains = positive(kept["raw"])
    return Steps.of(gains, kept["costs"], open, unit_of(job.budget), piece.start)


def actions_of(
    job: Job, piece: Piece, kept: dict[str, np.ndarray], cuts: Sequence[Cut | None]
) -> list[np.ndarray]:
    """Everyone's action under each choice; None: as chosen for all pieces at once."""
    if None in cuts:
        return [np.load(job.actions(piece)).astype(int)]
    steps, locked = steps_of(job, piece, kept), kept["locked"].astype(int)
    return [np.where(locked > 0, locked, steps.chosen(cut)) for cut in cuts if cut is not None]


def keep_ids(job: Job, piece: Piece, roster: Roster) -> None:
    """Leaves the checksums of a piece's ids, in order."""
    ids = np.sort(hashes(roster.ids))
    write_atomically(job.ids(piece), functools.partial(save_array, array=ids))


def hashes(ids: pl.Series) -> np.ndarray:
    """A checksum of each id, the same for 7 and "7"."""
    return ids.cast(pl.String).hash().to_numpy()


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes an array, under whatever name."""
    with path.open("wb") as file:
        np.save(file, array)
