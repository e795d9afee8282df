"""Processes that run a programme and are killed, or race each other, with a plain stand-in model.

    python tests/programmes.py kill FOLDER KILLS SEED
    python tests/programmes.py race FOLDER ROUNDS

Children are forked before anything is computed.
"""

import dataclasses
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import alembic.command  # noqa: F401 - once here, and not in every child that is killed
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.store import Programme

BUDGET = 3


@dataclasses.dataclass(frozen=True)
class Facts:
    spent: float


@dataclasses.dataclass
class FirstCome:
    """Calls the first people in the worst states, as far as the budget goes."""

    fingerprint: str = "first come"
    on_plan: Callable[[], object] = lambda: None
    state_names: tuple[str, ...] = ("good", "fair", "bad")
    action_names: tuple[str, ...] = ("none", "call", "visit")
    feature_names: tuple[str, ...] = ("age",)
    costs: tuple[float, ...] | None = (0.0, 1.0, 2.0)
    continuous: bool = False

    @property
    def network(self):
        return SimpleNamespace(perception=SimpleNamespace(continuous=self.continuous))

    def plan(self, frame, budget, rules=None, waiting=20):
        self.on_plan()
        due = frame["state"] == "bad"
        if rules is not None and rules.cooldown:
            due &= (frame[rules.last] > rules.cooldown).fill_null(True)
        chosen = due & (due.cast(pl.Int64).cum_sum() <= budget)
        action = pl.when(chosen).then(pl.lit("call")).otherwise(pl.lit("none"))
        listed = frame.select("id", action=action, cost=chosen.cast(pl.Float32))
        out = listed.hstack(frame.drop("id").get_columns())
        return SimpleNamespace(frame=out, summary=Facts(float(chosen.sum())))


class Expected:
    """What a file must hold, kept by plain dictionaries: no code is shared with the package."""

    def __init__(self):
        self.round, self.stays, self.states, self.plans, self.done = 1, {}, {}, {}, {}

    def after(self, call: str, given: Any = None) -> "Expected":
        """As it would be after one more call."""
        new = Expected()
        for name, value in vars(self).items():
            setattr(new, name, value.copy() if isinstance(value, dict) else value)
        now = new.round
        if call in ("join", "observe"):
            new.states.update({(who, now): state for who, state in given.items()})
        if call == "join":
            new.stays.update({(who, now): None for who in given})
        if call == "leave":
            new.stays.update({key: now for key in new.stays if key[0] in given})
        if call == "plan":
            here = [who for (who, _), gone in new.stays.items() if gone is None]
            last = {who: state for (who, _), state in sorted(new.states.items(), key=by_round)}
            new.plans[now] = [who for who in here if last[who] == 2][:BUDGET]
        if call == "record":
            new.done.update({(who, now): "call" for who in new.plans[now]})
            new.round += 1
        return new

    def told(self):
        spent = {round: float(len(chosen)) for round, chosen in self.plans.items()}
        return self.stays, self.states, spent, self.done


def by_round(item):
    return item[0][1]


def found(path: Path):
    """What the file holds, read by SQL alone."""
    sql = sqlite3.connect(path)
    assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert sql.execute("PRAGMA foreign_key_check").fetchall() == []
    if not sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return Expected().told()
    stays = {(who, at): gone for who, at, gone in sql.execute("SELECT id, joined, gone FROM stays")}
    states = {(w, r): state for w, r, state in sql.execute("SELECT id, round, state FROM states")}
    rows = sql.execute("SELECT round, status, facts FROM plans WHERE status <> 'superseded'")
    rows = rows.fetchall()
    plans = {round: json.loads(facts)["spent"] for round, _, facts in rows}
    done = {(w, r): action for w, r, action in sql.execute("SELECT id, round, action FROM actions")}
    sql.close()
    closed = [round for round, status, _ in rows if status == "recorded"]
    assert closed == list(range(1, len(closed) + 1))
    assert len(plans) == len(rows) <= len(closed) + 1
    return stays, states, plans, done


def drive(path: Path, tell: int, seed: int) -> None:
    """Runs a programme for ever, and says before each call what it will do, and after that it
    was confirmed."""
    lots = random.Random(seed)

    def say(*what):
        os.write(tell, (json.dumps(what) + "\n").encode())

    say("open")
    programme = Programme(path, FirstCome())
    say("done")
    while True:
        now, here = programme.round, programme.roster()["id"].to_list()
        batch = f"{lots.getrandbits(48):x}"
        new = {f"{batch}-{i}": lots.randrange(3) for i in range(4)}
        say("join", new)
        programme.join(pl.DataFrame({"id": list(new), "state": list(new.values()), "age": 3}))
        say("done")
        gone = lots.sample(here, min(len(here), 3))
        if gone:
            say("leave", gone)
            programme.leave(gone)
            say("done")
        seen = {who: lots.randrange(3) for who in new}
        say("observe", seen)
        programme.observe(pl.DataFrame({"id": list(seen), "state": list(seen.values())}))
        say("done")
        say("plan", now)
        programme.plan(BUDGET, round=now, again=True)
        say("done")
        say("record", now)
        programme.record(round=now)
        say("done")


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """A child that does `work` and can tell what it does; its process and the ear to hear it."""
    hear, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        return child, hear
    os.close(hear)
    try:
        work(tell)
    except BaseException as error:  # a child must never go on as its parent
        os.write(tell, (json.dumps(["error", repr(error)]) + "\n").encode())
    os._exit(0)


def heard(hear: int, before: bytes = b"") -> list:
    """Everything a child said until its end, after what was heard before."""
    with os.fdopen(hear, "rb") as ear:
        return [json.loads(line) for line in (before + ear.read()).splitlines()]


def kill(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills at random moments; the file must hold what was confirmed, and the call that was under
    way wholly or not at all."""
    lots = random.Random(seed)
    told = {"kills": 0, "confirmed": 0, "under_way": 0, "of_them_held": 0, "journals": 0}
    path, expected = folder / "0.db", Expected()
    for number in range(kills):
        if number % 20 == 0:
            path, expected = folder / f"{number}.db", Expected()
        child, hear = fork(lambda tell: drive(path, tell, seed + number))  # noqa: B023
        # One in four is killed while it starts and opens the file, the others at work.
        first = os.read(hear, 1 << 16) if number % 4 else b""
        time.sleep(lots.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        under_way: Any = None
        for line in heard(hear, first):
            assert line[0] != "error", line
            if line[0] == "done":
                expected, under_way = expected.after(*under_way), None
                told["confirmed"] += 1
            else:
                under_way = line
        told["kills"] += 1
        told["journals"] += Path(f"{path}-journal").exists()
        held = found(path)
        if under_way is not None:
            told["under_way"] += 1
            if held != expected.told():
                expected = expected.after(*under_way)
                told["of_them_held"] += 1
        assert held == expected.told(), (number, under_way)
    return told


def race(folder: Path, rounds: int) -> dict[str, int]:
    """Two processes plan each round at the same moment, by turns with the same and with another
    budget: the model is asked once, and the other gets the same plan or is refused."""
    path, asked = folder / "race.db", folder / "asked"
    told = {"rounds": rounds, "plans": 0, "same": 0, "refused": 0}

    def note():
        with asked.open("a") as file:
            file.write("x")
        time.sleep(0.01)

    def compete(tell: int, wait: int, number: int, budget: float) -> None:
        with Programme(path, FirstCome(on_plan=note)) as programme:
            if number == 1:
                with_state = pl.DataFrame({"id": range(9), "state": "bad"})
                try:
                    programme.join(with_state)
                except InputError as error:
                    assert "already" in str(error)  # noqa: PT017
            os.read(wait, 1)
            try:
                plan = programme.plan(budget, round=number)
                said = ["plan", plan.asked["budget"], int(plan.facts["spent"])]
            except InputError as error:
                said = ["refused", str(error)]
            os.write(tell, (json.dumps(said) + "\n").encode())
            if said[0] == "plan":
                programme.record(round=number)

    for number in range(1, rounds + 1):
        wait, start = os.pipe()
        budgets = (2.0, 2.0 + number % 2)
        children = [
            fork(lambda tell, b=budget: compete(tell, wait, number, b))  # noqa: B023
            for budget in budgets
        ]
        os.write(start, b"xx")
        said = [line for _, hear in children for line in heard(hear)]
        for child, _ in children:
            os.waitpid(child, 0)
        os.close(wait)
        os.close(start)
        assert len(said) == 2, said
        assert all(line[0] in ("plan", "refused") for line in said), said
        told["refused"] += sum(line[0] == "refused" for line in said)
        told["same"] += said[0] == said[1]
    sql = sqlite3.connect(path)
    told["plans"] = sql.execute("SELECT count(*) FROM plans WHERE status = 'recorded'").fetchone()[
        0
    ]
    told["stored"] = sql.execute("SELECT count(*) FROM plans").fetchone()[0]
    told["asked"] = len(asked.read_text())
    return told


if __name__ == "__main__":
    verb, place, *numbers = sys.argv[1:]
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    run = {"kill": kill, "race": race}[verb]
    print(json.dumps(run(Path(place), *map(int, numbers))))
