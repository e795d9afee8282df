"""A small programme that is served, for tests: people, users, and clients that are signed in."""

from pathlib import Path
from typing import Any

import argon2
import polars as pl
from starlette.testclient import TestClient

import prefermab as pm
from prefermab.service import Settings, create_app
from prefermab.service.auth import accounts

PASSWORD = "long enough for tests"
SAME = {"sec-fetch-site": "same-origin"}
ORIGIN = "http://localhost"
ROLES = {"Vera": "viewer", "Ana": "field worker", "Paul": "planner", "Ada": "admin"}
BUDGET = 4


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def people(number: int = 12, first: int = 1) -> pl.DataFrame:
    """People of two field workers; some of them in each state."""
    states = ("motivated", "persuadable", "lost cause")
    ids = range(first, first + number)
    return pl.DataFrame(
        {
            "id": list(ids),
            "state": [states[i % 3] for i in ids],
            "worker": [("Ana", "Bea")[i % 2] for i in ids],
            "name": [f"person {i}" for i in ids],
            "feature_0": [0.1 + 0.05 * (i % 7) for i in ids],
        }
    )


class Served:
    """A served programme with one user of each role, in a folder or at an address."""

    def __init__(self, place: Path | str, model: Any, **settings: Any):
        if isinstance(place, Path):
            place.mkdir(exist_ok=True)
            place = str(place / "calls.db")
        self.place, self.clock, self.model = place, Clock(), model
        with pm.Programme(self.place, model) as programme:
            programme.keep_place("armman")
            programme.join(people())
        self.app = create_app(Settings(self.place, **settings), clock=self.clock, model=model)
        self.desk = self.app.state.desk
        for name, role in ROLES.items():
            self.add(name, role)

    def add(self, name: str, role: str) -> None:
        """Adds a user who has set a password."""
        with self.desk.records.writing() as sql:
            link = accounts.add_user(sql, name, role, self.clock())
            accounts.use_link(sql, link, "", accounts.HASHER.hash(PASSWORD), self.clock())

    def client(self, name: str | None = None, **headers: str) -> TestClient:
        """A browser, signed in unless without a name."""
        client = TestClient(
            self.app, ORIGIN, raise_server_exceptions=False, follow_redirects=False,
            headers={**SAME, **headers},
        )  # fmt: skip
        if name is not None:
            found = client.post("/sign-in", data={"name": name, "password": PASSWORD})
            assert found.status_code == 303, found.text
        return client

    def token(self, name: str, *scopes: str) -> TestClient:
        """A program with a token of a user."""
        with self.desk.records.writing() as sql:
            secret = accounts.add_token(sql, name, "test", scopes, self.clock())
        client = TestClient(self.app, ORIGIN, raise_server_exceptions=False, follow_redirects=False)
        client.headers = {"authorization": f"Bearer {secret}"}
        return client


def fast_passwords() -> None:
    """Passwords are hashed with little work, since tests do it often."""
    accounts.HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
