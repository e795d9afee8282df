"""Checks that no answered change of a list is lost when several planners change it at once."""

import dataclasses
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from prefermab.common.pages import table_as_markdown
from studies.load import PASSWORD, SAME, Load, prepare, served

TESTS = Path(__file__).parent.parent / "tests"
PLANNERS, WORKERS = 6, 2
SIZES = ((300, 1000), (5200, 20))
"""People in the programme, and changes that the service has to confirm: by requests, and by jobs
above 5,000 people."""


@dataclasses.dataclass
class Planner:
    """A planner with a browser, who moves some of the people and nobody else's."""

    browser: httpx.Client
    mine: list[int]
    lots: random.Random
    expected: dict[int, str] = dataclasses.field(default_factory=dict)
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    def sign_in(self) -> None:
        """Signs in."""
        form = {"name": "Planner", "password": PASSWORD}
        assert self.browser.post("/sign-in", data=form).status_code == 303

    def change(self) -> None:
        """Moves one person, by a page, by the API, or by a whole list with other rules."""
        who, kind = self.lots.choice(self.mine), self.lots.choice(("off", "on", "free"))
        way = self.lots.choice(("page", "API", "list"))
        answer = getattr(self, f"by_{way.lower()}")(who, kind)
        if answer == "done":
            self.expected[who] = kind
        self.counts[answer] += 1

    def by_page(self, who: int, kind: str) -> str:
        """A change on the page, with the number of the list that it showed."""
        form = {"id": str(who), "kind": kind, "why": "study", "round": "1"}
        form["attempt"] = str(self.valid()["attempt"])
        answer = self.browser.post("/week/change", data=form)
        place = answer.headers.get("location", "")
        if "/week/job/" in place:
            return self.wait(int(place.rpartition("/")[2]))
        return "done" if answer.status_code == 303 else said(answer)

    def by_api(self, who: int, kind: str) -> str:
        """The same by the API, without a look at the list."""
        body = {"id": who, "kind": kind, "why": "study"}
        return self.outcome(self.browser.post("/api/v1/plans/1/change", json=body))

    def by_list(self, who: int, kind: str) -> str:
        """A whole list, with the rules of the valid one and this change."""
        valid = self.valid()
        rules = valid["asked"]["rules"] or {}
        for rule, here in (("exclude_ids", "off"), ("lock_ids", "on")):
            rest = [one for one in rules.get(rule, []) if one != who]
            rules[rule] = [*rest, *[who] * (kind == here)]
        body = {"budget": valid["asked"]["budget"], "again": True, "attempt": valid["attempt"]}
        return self.outcome(self.browser.post("/api/v1/plans", json={**body, "rules": rules}))

    def valid(self) -> dict[str, Any]:
        """The list that is valid now."""
        return self.browser.get("/api/v1/plans/current").json()

    def outcome(self, answer: httpx.Response) -> str:
        """What was answered, at once or by a job."""
        if answer.status_code == 202:
            return self.wait(answer.json()["number"])
        return "done" if answer.status_code == 200 else said(answer)

    def wait(self, number: int) -> str:
        """Waits for a job; says how it ended."""
        while (job := self.browser.get(f"/api/v1/jobs/{number}").json())["status"] in (
            "waiting", "running",
        ):  # fmt: skip
            time.sleep(0.2)
        told = (job["answer"] or {}).get("detail", "")
        words = {"meanwhile": "refused", "in use": "busy", "budget": "not possible"}
        found = [word for part, word in words.items() if part in told]
        return "done" if job["status"] == "done" else [*found, "other"][0]


def said(answer: httpx.Response) -> str:
    """An answer that is not "done", in a word."""
    words = {409: "refused", 503: "busy", 400: "not possible"}
    return words.get(answer.status_code, "other")


def race(place: str, people: int, changes: int) -> list[str]:
    """Lets planners change the list of one programme until so many changes are confirmed."""
    size = Load(people=people, users=1, workers=WORKERS)
    prepare(place, size)
    with served(place, size) as address:
        planners = []
        for number in range(PLANNERS):
            browser = httpx.Client(base_url=address, headers=SAME, timeout=120.0)
            mine = list(range(1 + number, people // 3, PLANNERS))
            planners.append(Planner(browser, mine, random.Random(number)))
            planners[-1].sign_in()

        def work(planner: Planner) -> None:
            while sum(one.counts["done"] for one in planners) < changes:
                planner.change()

        begun = time.perf_counter()
        with ThreadPoolExecutor(PLANNERS) as threads:
            list(threads.map(work, planners))
        took, rules = time.perf_counter() - begun, planners[0].valid()["asked"]["rules"]
    held = dict.fromkeys(rules["exclude_ids"], "off") | dict.fromkeys(rules["lock_ids"], "on")
    counts = sum((one.counts for one in planners), Counter[str]())
    wanted = [pair for one in planners for pair in one.expected.items()]
    lost = sum(held.get(who, "free") != kind for who, kind in wanted)
    rest = (counts[one] for one in ("refused", "not possible", "busy", "other"))
    return [*(f"{figure:,}" for figure in (counts["done"], lost, *rest)), f"{took:.0f} s"]


def races() -> str:
    """Several planners who change the list of a round at the same time."""
    sys.path.insert(0, str(TESTS))
    from servers import running  # type: ignore[import-not-found]

    rows = []
    with tempfile.TemporaryDirectory() as folder, running() as server:
        for people, changes in SIZES:
            places = (("SQLite", f"{folder}/{people}.db"),
                      ("PostgreSQL", f"{server.address}#people{people}"))  # fmt: skip
            for name, place in places:
                row = [name, f"{people:,}", *race(place, people, changes)]
                print(*row, flush=True)
                rows.append(row)
    head = ["database", "people", "confirmed", "lost", "refused", "not possible", "busy",
            "other answers", "took"]  # fmt: skip
    return (
        f"{PLANNERS} planners change the list of one round at the same time, without a pause, by a "
        f"server with {WORKERS} worker processes: on the page, by the API, and by a whole new list "
        "with other rules. Each moves people of their own on the list, off it or back, so the last "
        "change of a person that was confirmed has to hold at the end. Refused (409) is a list "
        "that somebody else had changed since it was read. Not possible (400) is more people on "
        "the list than the budget allows. Above 5,000 people every change is made "
        "by a job.\n\n" + table_as_markdown(head, rows)
    )
