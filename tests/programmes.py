"""Processes that run a programme and are killed, or race each other, with a plain stand-in model.

    python tests/programmes.py kill PLACE KILLS SEED
    python tests/programmes.py race PLACE ROUNDS
    python tests/programmes.py crowd PLACE PROCESSES SECONDS
    python tests/programmes.py changes PLACE PROCESSES CHANGES
    python tests/programmes.py outage ANY KILLS SEED
    python tests/programmes.py damage FOLDER TRIALS SEED
    python tests/programmes.py full FOLDER TIMES

PLACE is a folder for files, or the address of a PostgreSQL server. `outage` kills a server of its
own, `damage` flips a bit of a file in each trial. Children are forked before anything is computed.
"""

import contextlib
import dataclasses
import functools
import json
import os
import random
import resource
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import alembic.command  # noqa: F401 - once here, and not in every child that is killed
import polars as pl
import psycopg

from prefermab.errors import BusyError, InputError, PrefermabError, StorageError
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import Programme
from prefermab.programme.store.frames import first_difference
from servers import running

BUDGET = 3
MOST_CALLS = 10
"""Calls that a process confirms at most before it is killed at a random moment."""


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
            due &= (frame[rules.last_column] > rules.cooldown).fill_null(True)
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


def place_of(target: str, name: str) -> str:
    """A programme's place in a folder or on a server."""
    return f"{target}#{name}" if "://" in target else str(Path(target) / f"{name}.db")


@contextlib.contextmanager
def plain_sql(place: str):
    """Executes SQL without the package; all that was under way is over."""
    if "://" not in place:
        sql = sqlite3.connect(place)
        assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert sql.execute("PRAGMA foreign_key_check").fetchall() == []
        yield sql
        sql.close()
        return
    address, _, name = place.rpartition("#")
    with psycopg.connect(address) as sql:
        sql.execute("SELECT set_config('search_path', %s, false)", (name,))
        # The server may still be about to commit for a client that is gone.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('prefermab write ' || %s, 0))"
        sql.execute(lock, (name,))
        yield sql


def is_empty(sql, place: str) -> bool:
    if "://" not in place:
        return not sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return sql.execute("SELECT to_regclass('plans')").fetchone()[0] is None


def found(place: str):
    """What a programme holds, read by SQL alone."""
    with plain_sql(place) as sql:
        if is_empty(sql, place):
            return Expected().told()
        stays = {(w, at): gone for w, at, gone in sql.execute("SELECT id, joined, gone FROM stays")}
        rows = sql.execute("SELECT id, round, state FROM states")
        states = {(who, round): state for who, round, state in rows}
        rows = sql.execute(
            "SELECT round, status, facts FROM plans WHERE status <> 'superseded' ORDER BY round"
        ).fetchall()
        plans = {round: json.loads(facts)["spent"] for round, _, facts in rows}
        done = sql.execute("SELECT id, round, action FROM actions")
        done = {(who, round): action for who, round, action in done}
    closed = [round for round, status, _ in rows if status == "recorded"]
    assert closed == list(range(1, len(closed) + 1))
    assert len(plans) == len(rows) <= len(closed) + 1
    return stays, states, plans, done


def drive(path: str, tell: int, seed: int) -> None:
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


def until_done(hear: int, calls: int) -> bytes:
    """What a child says until so many calls are confirmed, of which opening is the first."""
    said = b""
    while said.count(b'["done"]') < calls and (more := os.read(hear, 1 << 16)):
        said += more
    return said


def heard(hear: int, before: bytes = b"") -> list:
    """Everything a child said until its end, after what was heard before."""
    with os.fdopen(hear, "rb") as ear:
        return [json.loads(line) for line in (before + ear.read()).splitlines()]


class Ledger:
    """What children confirmed, and what they were about to do when they ended."""

    def __init__(self):
        self.expected, self.confirmed, self.under_way, self.held = Expected(), 0, 0, 0

    def check(self, place: str, lines: list) -> None:
        """The programme must hold what was confirmed, and the call that was under way wholly or
        not at all."""
        under_way: Any = None
        for line in lines:
            if line[0] == "done":
                self.expected, under_way = self.expected.after(*under_way), None
                self.confirmed += 1
            else:
                under_way = line
        held = found(place)
        if under_way is not None:
            self.under_way += 1
            if held != self.expected.told():
                self.expected = self.expected.after(*under_way)
                self.held += 1
        assert held == self.expected.told(), under_way

    def told(self) -> dict[str, int]:
        return {
            "confirmed": self.confirmed, "under_way": self.under_way, "of_them_held": self.held,
        }  # fmt: skip


def kill(target: str, kills: int, seed: int) -> dict[str, int]:
    """Kills processes at random moments."""
    lots, ledgers, place = random.Random(seed), [], ""
    for number in range(kills):
        if number % 20 == 0:
            place = place_of(target, f"kill{seed}_{number}")
            ledgers.append(Ledger())
        child, hear = fork(lambda tell: drive(place, tell, seed + number))  # noqa: B023
        # One in four is killed while it starts and opens the programme, the others at work: in
        # the midst of one of their first calls, or between two.
        first = until_done(hear, 1 + lots.randrange(MOST_CALLS)) if number % 4 else b""
        time.sleep(lots.uniform(0.0, 0.05 if first else 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = heard(hear, first)
        assert all(line[0] != "error" for line in lines), lines
        ledgers[-1].check(place, lines)
    told: Counter[str] = Counter(kills=kills)
    for ledger in ledgers:
        told.update(ledger.told())
    return dict(told)


def outage(_: str, kills: int, seed: int) -> dict[str, int]:
    """Kills the PostgreSQL server itself while a process works."""
    lots, ledger = random.Random(seed), Ledger()
    with running() as server:
        place = place_of(server.address, "calls")
        for number in range(kills):
            child, hear = fork(lambda tell: drive(place, tell, seed + number))  # noqa: B023
            first = until_done(hear, 1 + lots.randrange(MOST_CALLS))
            time.sleep(lots.uniform(0.0, 0.05))
            server.kill()
            lines = heard(hear, first)
            os.waitpid(child, 0)
            server.start()
            *lines, (last, said) = lines
            assert last == "error", last
            assert said.startswith("StorageError("), said
            ledger.check(place, lines)
    return {"kills": kills, **ledger.told()}


def race(target: str, rounds: int) -> dict[str, int]:
    """Two processes plan each round at the same moment, by turns with the same and with another
    budget: the model is asked once, and the other gets the same plan or is refused."""
    place, told = place_of(target, "race"), {"rounds": rounds, "same": 0, "refused": 0}
    count, asked = os.pipe()

    def note():
        os.write(asked, b"x")
        time.sleep(0.01)

    def compete(tell: int, wait: int, number: int, budget: float) -> None:
        with Programme(place, FirstCome(on_plan=note)) as programme:
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
    with plain_sql(place) as sql:
        stored = [status for (status,) in sql.execute("SELECT status FROM plans")]
    told |= {"plans": stored.count("recorded"), "stored": len(stored)}
    return {**told, "asked": len(os.read(count, 1 << 16))}


def crowd(target: str, processes: int, seconds: int) -> dict[str, int]:
    """Many processes do anything at any time to one programme: what they confirm is there, each
    round has one plan, and no error is told but that of a wrong moment, or Busy."""
    place, told = place_of(target, "crowd"), Counter()
    Programme(place, FirstCome()).close()
    children = [fork(lambda tell, n=n: mingle(place, tell, n, seconds)) for n in range(processes)]
    joined: set[str] = set()
    for child, hear in children:
        lines = heard(hear)
        os.waitpid(child, 0)
        assert [line for line in lines if line[0] == "error"] == [], lines[-1]
        joined.update(who for line in lines if line[0] == "join" for who in line[1])
        told.update(line[0] for line in lines)
    with plain_sql(place) as sql:
        assert joined <= {who for (who,) in sql.execute("SELECT id FROM people")}
        plans = sql.execute("SELECT round, status FROM plans").fetchall()
    valid = sorted(round for round, status in plans if status != "superseded")
    assert valid == list(range(1, len(valid) + 1))
    with Programme.open(place, FirstCome()) as programme:
        rows = programme.verify_audit().rows
    # Beginning, the model, each plan once though the same may be asked for again, and the rest.
    assert rows == 2 + len(plans) + sum(told[w] for w in ("join", "leave", "observe", "record"))
    return {**told, "rounds": len(valid), "people": len(joined), "audit": rows}


def changes(target: str, processes: int, number: int) -> dict[str, int]:
    """Several processes change the list of a round at once, each with as many people: every change
    that was confirmed holds afterwards."""
    place = place_of(target, "changes")
    wait, start = os.pipe()

    def change(tell: int, process: int) -> None:
        os.read(wait, 1)
        with Programme.open(place, FirstCome(), wait=60.0) as programme:
            for who in range(process * number, (process + 1) * number):
                programme.replan(functools.partial(taken_off, who), round=1)
                os.write(tell, f"{who}\n".encode())

    children = [fork(lambda tell, n=n: change(tell, n)) for n in range(processes)]
    with Programme(place, FirstCome()) as programme:
        programme.join(pl.DataFrame({"id": range(9), "state": "bad"}))
        programme.plan(BUDGET, Rules())
        os.write(start, b"x" * processes)
        confirmed = [who for _, hear in children for who in heard(hear)]
        for child, _ in children:
            os.waitpid(child, 0)
        held, made = programme.planned().asked["rules"], programme.planned().attempt - 1
        programme.verify_audit()
    lost = set(confirmed) - set(held["exclude_ids"])
    return {"confirmed": len(confirmed), "lost": len(lost), "made": made}


def taken_off(who: int, _: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a list, with one more person who is taken off it."""
    off = [*asked["rules"]["exclude_ids"], who]
    return {**asked, "rules": {**asked["rules"], "exclude_ids": off}}


def mingle(place: str, tell: int, seed: int, seconds: float) -> None:
    """One of a crowd: tells each call that was confirmed."""
    lots, end = random.Random(seed), time.monotonic() + seconds
    attempt = 0
    with Programme.open(place, FirstCome(), wait=5.0) as programme:
        while time.monotonic() < end:
            what, said = lots.choice(("join", "leave", "observe", "plan", "record", "look")), None
            here = programme.roster()["id"].to_list()
            some = lots.sample(here, min(3, len(here)))
            try:
                if what == "join":
                    attempt += 1
                    said = [f"{seed}-{attempt}-{n}" for n in range(3)]
                    programme.join(pl.DataFrame({"id": said, "state": "bad", "age": 1.0}))
                elif what == "leave" and len(here) > 60:
                    programme.leave(some)
                elif what == "observe" and some:
                    programme.observe(pl.DataFrame({"id": some, "state": "bad"}))
                elif what == "plan":
                    programme.plan(lots.randrange(1, 4), again=True)
                elif what == "record":
                    programme.record()
                else:
                    what = "look"
                    programme.history()
            except InputError:
                what = "refused"
            except BusyError:
                what = "busy"
            os.write(tell, (json.dumps([what, said]) + "\n").encode())


def some_rounds(path: str) -> None:
    """A programme with something in each table that plans and logs are made from."""
    people = {"id": range(40), "state": ["bad", "good"] * 20, "age": [n / 7 for n in range(40)]}
    with Programme(path, FirstCome()) as programme:
        programme.join(pl.DataFrame(people).with_columns(town=pl.lit("é")), why="first village")
        for now in range(1, 4):
            programme.plan(now)
            done = pl.DataFrame({"id": [now], "action": ["visit"], "why": ["ill"]})
            programme.record(done, over_budget=True)
            seen = {"id": [now, 9], "state": ["fair", "bad"], "age": [0.5, 1e-300]}
            programme.observe(pl.DataFrame(seen))
        corrected = pl.DataFrame({"id": [3], "action": ["visit"], "why": ["ill"]})
        programme.record(corrected, round=1, correct=True, yes=True, over_budget=True)
        programme.leave([7])
        programme.plan(2)


def everything(path: str) -> list[pl.DataFrame]:
    """What a programme says of its people, states, plans and logs; the plan of this round again."""
    with Programme.open(path, FirstCome(), wait=0.1) as programme:
        kept = programme.history()
        plan = programme.plan(2)
        return [
            programme.roster(), kept.people, kept.states, kept.actions, kept.corrections, kept.log,
            kept.plans, kept.listed, programme.deviations(), programme.planned(1).frame, plan.frame,
            plan.inputs, pl.DataFrame({"told": [json.dumps([plan.asked, programme.last_round])]}),
        ]  # fmt: skip


def audit_log(path: str) -> pl.DataFrame | None:
    """The audit log if it verifies, else None."""
    try:
        with Programme.open(path, FirstCome(), wait=0.1) as programme:
            programme.verify_audit()
            return programme.audit()
    except PrefermabError:
        return None


def damage(folder: str, trials: int, seed: int) -> dict[str, int]:
    """Flips one bit of a programme's file in each trial: what is read then is as before, or one
    sentence says that it is damaged."""
    lots, whole, hurt = random.Random(seed), Path(folder) / "whole.db", Path(folder) / "hurt.db"
    some_rounds(str(whole))
    data, before, log = whole.read_bytes(), everything(str(whole)), audit_log(str(whole))
    told: Counter[str] = Counter(trials=trials, told=0, same=0, verify=0, silent=0, traceback=0)
    for _ in range(trials):
        bit = lots.randrange(8 * len(data))
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        for old in Path(folder).glob("hurt.db*"):
            old.unlink()
        hurt.write_bytes(broken)
        try:
            now = everything(str(hurt))
            same = all(first_difference(*pair) is None for pair in zip(before, now, strict=True))
            told["same" if same else "silent"] += 1
            found = audit_log(str(hurt))
            told["verify"] += found is None
            told["silent"] += same and found is not None and not found.equals(log)
            if not same:
                print("silent", seed, bit, file=sys.stderr)
        except PrefermabError as error:
            assert "\n" not in str(error)  # noqa: PT017
            told["told"] += 1
        except BaseException as error:  # a panic of polars is no Exception
            told["traceback"] += 1
            print("traceback", seed, bit, repr(error)[:300], file=sys.stderr)
    return dict(told)


def full(folder: str, times: int) -> dict[str, Any]:
    """Reads a programme while no file can become longer, as on a full disk."""
    path = str(Path(folder) / "full.db")
    some_rounds(path)
    before = everything(path)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    said = []
    for _ in range(times):
        now = everything(path)
        assert all(first_difference(*pair) is None for pair in zip(before, now, strict=True))
        with Programme.open(path, FirstCome()) as programme:
            try:
                programme.leave([1])
            except StorageError as error:
                said.append(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with Programme.open(path, FirstCome()) as programme:
        return {"said": said, "left": programme.leave([1])}


if __name__ == "__main__":
    verb, place, *numbers = sys.argv[1:]
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    run = {
        "kill": kill,
        "race": race,
        "crowd": crowd,
        "changes": changes,
        "outage": outage,
        "damage": damage,
        "full": full,
    }[verb]
    print(json.dumps(run(place, *map(int, numbers))))
