"""A served programme under load: users read and record while plans are made.

    python -m studies.load                          writes docs/results/service.md
    python -m studies.load --people 5000 --seconds 15 --print      a smaller run, printed only

Server and users run on this machine (127.0.0.1 only) and share its processors. The users are signed
in as field workers. Each opens the list, then the record, then marks what was done with one person,
with pauses in between. Afterwards every confirmed mark must be in the database.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown
from prefermab.models.loading import load
from prefermab.programme.store import Programme
from prefermab.service.auth import accounts
from prefermab.service.auth.database import APPROVALS, Records

PAGE = Path("docs/results/service.md")
PASSWORD = "a password for the study"
SAME = {"sec-fetch-site": "same-origin"}
STATES = ("motivated", "persuadable", "lost cause")


@dataclasses.dataclass(frozen=True)
class Load:
    """The size of a study."""

    people: int = 100_000
    users: int = 50
    seconds: float = 40.0
    """Duration of each of the two parts: quiet, and with plans."""
    think: float = 3.0
    """Mean seconds between two requests of a user."""
    workers: int = 2


@dataclasses.dataclass
class Seen:
    """Kind, part, milliseconds and status of each request; and the confirmed marks."""

    requests: list[tuple[str, str, float, int]] = dataclasses.field(default_factory=list)
    marked: dict[str, str] = dataclasses.field(default_factory=dict)


def prepare(place: str, size: Load) -> list[str]:
    """Creates a programme whose first round is planned; returns the names of its field workers."""
    use_compilation_cache()
    model, rng = load("armman"), np.random.default_rng(7)
    names = [f"Worker {number:02}" for number in range(size.users)]
    people = pl.DataFrame(
        {
            "id": np.arange(1, size.people + 1),
            "state": rng.choice(STATES, size.people),
            "worker": rng.choice(names, size.people),
            "village": rng.integers(0, 500, size.people),
        }
    ).with_columns(pl.Series(name, rng.random(size.people)) for name in model.feature_names)
    with Programme(place, model, who="study") as programme:
        programme.keep_place("armman")
        programme.join(people)
        programme.plan(size.people // 10)
    records, now = Records(place, 60.0), time.time()
    hashed = accounts.HASHER.hash(PASSWORD)
    with records.writing() as sql:
        for name, role in [*((name, "field worker") for name in names), ("Planner", "planner")]:
            secret = accounts.add_user(sql, name, role, now)
            accounts.use_link(sql, secret, "", hashed, now)
        approved = {"round": 1, "attempt": 1, "name": "Planner", "at": now}
        sql.execute(APPROVALS.insert().values(approved))
    records.close()
    return names


@contextlib.contextmanager
def served(place: str, size: Load) -> Iterator[str]:
    """Runs a server on a free port; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefermab", "serve", place, "--port", str(port),
               "--workers", str(size.workers)]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{address}/api/v1/health/ready").status_code == 200:
                    break
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(60)


async def use(client: httpx.AsyncClient, mine: list[int], seen: Seen, part: Any, rest: Any) -> None:
    """One user: opens the list, opens the record, makes a mark, and repeats this until the end."""
    turn = 0
    while part[0] != "end":
        who = mine[turn % len(mine)]
        turn += 1
        for kind in ("list", "record", "mark"):
            await asyncio.sleep(rest())
            if part[0] == "end":
                return
            begun = time.perf_counter()
            if kind == "mark":
                mark = {"id": who, "action": "call", "why": f"turn {turn}"}
                # The list is changed all the time; staff work by the first one, which was approved.
                body = {"round": 1, "attempt": 1, "marks": [mark]}
                answer = await client.post("/api/v1/marks", json=body, headers=SAME)
                if answer.status_code == 200:
                    seen.marked[str(who)] = f"turn {turn}"
            else:
                answer = await client.get({"list": "/week", "record": "/record"}[kind])
            took = 1000 * (time.perf_counter() - begun)
            seen.requests.append((kind, part[0], took, answer.status_code))


async def run(address: str, names: list[str], chosen: dict[str, list[int]], size: Load) -> Any:
    """Runs both parts with all users at once: first alone, then while plans are made one after the
    other."""
    lots, seen, part = random.Random(5), Seen(), ["warm-up"]
    limits = httpx.Limits(max_connections=2)
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for name in [*names, "Planner"]:
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=address, timeout=60.0, limits=limits)
            )
            form = {"name": name, "password": PASSWORD}
            answer = await client.post("/sign-in", data=form, headers=SAME)
            assert answer.status_code == 303, answer.text
            clients.append(client)
        users = [
            asyncio.create_task(
                use(client, chosen[name], seen, part, lambda: lots.expovariate(1 / size.think))
            )
            for client, name in zip(clients, names, strict=False)
        ]
        await asyncio.sleep(min(15.0, size.seconds / 2))
        part[0] = "quiet"
        await asyncio.sleep(size.seconds)
        part[0] = "with a plan"
        begun, plans = time.perf_counter(), 0
        while time.perf_counter() - begun < size.seconds:
            body = {"budget": size.people // 8 - plans, "again": True, "why": "study"}
            answer = await clients[-1].post("/api/v1/plans", json=body, headers=SAME)
            job = answer.json()
            while answer.status_code == 202 and job["status"] in ("waiting", "running"):
                await asyncio.sleep(0.2)
                job = (await clients[-1].get(f"/api/v1/jobs/{job['number']}")).json()
            assert job.get("status", "done") == "done", job
            plans += 1
        took = (time.perf_counter() - begun) / plans
        part[0] = "end"
        await asyncio.gather(*users)
        marks = (await clients[-1].get("/api/v1/marks")).json()
        # While a changed list waits for its approval, marks by the list before are late ones.
        marks += (await clients[-1].get("/api/v1/marks/late")).json()
    stored = {str(row["id"]): row["why"] for row in marks}
    lost = [who for who, why in seen.marked.items() if stored.get(who) != why]
    return seen, plans, took, lost


def page(size: Load, others: float, seen: Seen, plans: int, took: float, lost: list[str]) -> str:
    """The page of a study."""
    frame = pl.DataFrame(
        seen.requests, schema=["kind", "part", "ms", "status"], orient="row"
    ).filter(~pl.col("part").is_in(["warm-up", "end"]))
    rows = []
    for (kind, part), found in frame.group_by("kind", "part", maintain_order=True):
        ms = found["ms"].to_numpy()
        bad = int((found["status"] != 200).sum())
        figures = [f"{np.quantile(ms, share):.0f}" for share in (0.5, 0.95, 0.99)]
        rows.append((str(part), str(kind), f"{len(ms):,}", *figures, str(bad)))
    head = ["part", "request", "times", "median, ms", "95 %, ms", "99 %, ms", "errors"]
    pages = frame.filter(pl.col("kind") != "mark")
    p95 = {
        part: float(np.quantile(pages.filter(part=part)["ms"].to_numpy(), 0.95))
        for part in ("quiet", "with a plan")
    }
    return (
        "# The service under load\n\n"
        "Made by `python -m studies.load`; figures of one run. Before it began, other work on the "
        f"machine kept {others:.1f} processes waiting or running on average (the load of the last "
        f"minute) on its {os.cpu_count()} processors: on an idle machine it should be near 0.\n\n"
        f"{size.users} field workers, signed in, read their lists and say what was done, with "
        f"{size.think:g} seconds between two requests of each on average; {size.people:,} people "
        f"in one SQLite file; {size.workers} worker processes; server and users together on "
        f"{os.cpu_count()} processors ({platform.machine()}). Each part took "
        f"{size.seconds:g} seconds; in the second {plans} plans for all {size.people:,} were made "
        f"by jobs, one after the other without a break, {took:.0f} seconds each, the start of its "
        "process included.\n\n"
        + table_as_markdown(head, sorted(rows))
        + f"\nPages (list and record), 95 of 100 within: {p95['quiet']:.0f} ms without a plan, "
        f"{p95['with a plan']:.0f} ms while plans are made; the aim was 200 ms.\n\n"
        f"Confirmed marks of {len(seen.marked):,} people; not found afterwards as they were "
        f"confirmed: {len(lost)}.\n"
    )


def main() -> None:
    """Runs the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(Load):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("--print", action="store_true", help="print the page, do not write it")
    given = vars(parser.parse_args())
    only_print = given.pop("print")
    size, others = Load(**given), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        place = str(Path(folder) / "calls.db")
        names = prepare(place, size)
        with Programme.open(place, load("armman")) as programme:
            frame = programme.planned().frame.filter(pl.col("list") == "chosen")
        chosen = {name: frame.filter(worker=name)["id"].to_list() for name in names}
        with served(place, size) as address:
            text = page(size, others, *asyncio.run(run(address, names, chosen, size)))
    if only_print:
        print(text)
    else:
        write_atomically(PAGE, lambda draft: draft.write_text(text))


if __name__ == "__main__":
    main()
