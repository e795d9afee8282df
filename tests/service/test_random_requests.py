"""Random requests to every route, by everybody, on both databases: the server fails at none, what
is refused changes nothing, and who is not signed in does not learn where anything is."""

import contextlib
import inspect
import json
import random
import re
import sqlite3
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from fastapi.params import Form
from pydantic import BaseModel

import prefermab as pm
from prefermab.service.app import ROUTE_MODULES
from prefermab.service.auth import accounts
from prefermab.service.auth.access import EVERYBODY, RULES
from prefermab.service.auth.access import ROLES as RIGHTS
from services import BUDGET, ROLES, Served, fast_passwords

SEED = 31
TRIES = {"inside": 10, "outside": 4}
"""Requests for each route: by users who may call it, and by somebody who is not signed in. Each
user and token that may not call it tries once."""

LONG = {"2" * 30, "9" * 320, str(2**63), str(-(2**63) - 1), "x" * 3000, "é" * 90}
TEXTS = [
    "", " ", "0", "-1", "1.5", "1e400", "nan", "inf", "None", "null", "true", "id", "state", "٣",
    *sorted(LONG), "a\0b", "\ud800", "\udfff", "\u202e", "\ufeff", "--5", "ana", "Ana", "%", "%00",
    "../../etc/passwd", "..", "/", "\\", "'; DROP TABLE users; --", "%s{0}", "<script>", "=1+1",
    "[x](http://evil.example)", "\n", "\t", "a\nb", "🦉", "current", "planned", "worker", "http://[",
]  # fmt: skip
VALUES = [
    *TEXTS, None, True, False, 0, -1, 3, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0,
    1e308, 5e-324, float("nan"), float("inf"), [], {}, [[]], [None], [1, "a"], {"": None},
    {"a": {"b": []}}, ["a", "a"], [2**64], {"\ud800": 1}, {"north": 2.0}, {"Ana": -1},
]  # fmt: skip
ROW = b'[{"id": 99, "state": "motivated", '
TABLES = [
    b"", b"[]", b"{}", b"[1]", b"[{}]", b"null", b"\xff\xfe\x00", b"[" * 5000, b'[{"id": 1e999}]',
    ROW + b'"name": "a\\u0000b"}]', ROW + b'"name": "\\ud800"}]', ROW + b'"feature_0": NaN}]',
    ROW + b'"rounds_since_action": -5}]', ROW + b'"\\ud800": 1}]', ROW + b'"a\\u0000": 1}]',
    b'[{"id": null, "state": null}]', b'[{"id": 9223372036854775808, "state": "motivated"}]',
    b'[{"id": 2, "action": "call"}, {"id": 2, "action": "call"}]', b'[{"id": 2, "action": "x"}]',
    b'[{"id": "x", "state": "motivated", "feature_0": 0.1}]', b'[{"id": 2, "state": "motivated"}]',
    b"id,state\n2,motivated\n", b"id,state\n2,\n,,\n", b"id;id\n1;1\n", b'id,"state\n1,2', b"PAR1",
    b"id,state,feature_0\n99,motivated,1e999\n", b"id,action,reached\n2,call,maybe\n", b"PK\3\4",
    b"id\n\0\n", b"9" * 5000, b'[{"id": ' + b"9" * 5000 + b"}]",
]  # fmt: skip
KINDS = [
    "application/json", "text/csv", "application/vnd.apache.parquet", "image/png", "", "a/b;\xff",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
]  # fmt: skip
HEADERS = [
    ("origin", "http://["), ("origin", "http://localhost:x"), ("origin", "null"), ("origin", ""),
    ("host", "localhost:80@evil"), ("host", "[::1]evil"), ("host", "127.0.0.1:<script>"),
    ("accept", "text/csv;q=nan,*/*;q=1e999"), ("accept", "\xff"), ("accept", "," * 500),
    ("authorization", "Bearer \xff"), ("authorization", "Basic x"), ("authorization", "Bearer"),
    ("cookie", "prefermab=\xff"), ("cookie", "=;;=prefermab"), ("content-length", "\xb2"),
    ("content-type", "application/json; charset=x"), ("content-type", "multipart/form-data"),
    ("content-type", "multipart/form-data; boundary=\xff"), ("content-type", "\xff/json"),
    ("sec-fetch-site", "\xff"), ("x-forwarded-for", "x" * 999), ("x-forwarded-host", "evil.test"),
    ("if-modified-since", "x"), ("range", "bytes=9-1"), ("host", "["),
]  # fmt: skip
GOOD = {
    "id": "2", "person": "2", "ids": [2], "number": 1, "round": 1, "attempt": 1, "ending": "csv",
    "part": "people", "secret": "secret", "name": "Vera", "role": "viewer", "active": True, "at": 1,
    "budget": BUDGET, "budgets": [1, BUDGET], "model": "armman", "last_round": 9, "what": "done",
    "action": "call", "why": "because", "kind": "on", "do": "role", "label": "a token", "days": "3",
    "scopes": ["read"], "scope": "read", "list": "chosen", "rest": "planned", "by": "worker",
    "marks": [{"id": 2, "action": "call", "reached": True, "why": "x"}], "accept": True, "rows": 1,
    "rules": {"cooldown": 1, "lock_ids": [2], "group_column": "worker", "min_share": {"Ana": 0.25},
              "exclude_column": None, "last_column": None, "worker_column": None, "budgets": None},
    "rewards": {"motivated": 1, "persuadable": 0, "lost cause": 0}, "format": "csv", "waiting": 20,
    "cooldown": 0, "password": "x" * 12, "again": "x" * 12, "head": "ab" * 32, "explore": 0,
}  # fmt: skip
"""Values that are right, or nearly, for parameters of these names."""


class Place:
    """The database of a programme, looked at and set back without the package."""

    def __init__(self, place):
        self.place, self.name = place, place.rpartition("#")[2]
        self.sql: Any
        if "://" in place:
            self.sql = psycopg.connect(place.rpartition("#")[0], autocommit=True)
            self.sql.execute(f"SET search_path = {self.name}")
            self.sql.execute("SET session_replication_role = replica")  # no triggers
            rows = self.sql.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.name,)
            )
        else:
            self.sql = sqlite3.connect(place, isolation_level=None)
            rows = self.sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = sorted(row[0] for row in rows.fetchall() if not row[0].startswith("sqlite_"))

    def moment(self):
        """Changes with every change of the database, and perhaps without one."""
        if "://" in self.place:
            return self.sql.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        return self.sql.execute("PRAGMA data_version").fetchone()

    def contents(self):
        """All rows, without the counts of failed sign-ins and what the audit log has of them."""
        found = {one: self.sql.execute(f"SELECT * FROM {one}").fetchall() for one in self.tables}
        found["audit"] = [row for row in found["audit"] if "failed sign-in" not in row]
        found["meta"] = [row for row in found["meta"] if "audit_head" not in row]
        return {one: sorted(map(repr, rows)) for one, rows in found.items() if one != "attempts"}

    def keep(self):
        """Keeps all that is there for `restore`."""
        if "://" in self.place:
            self.sql.execute(f"CREATE SCHEMA {self.name}_kept")
            for one in self.tables:
                self.sql.execute(f"CREATE TABLE {self.name}_kept.{one} AS TABLE {one}")
        else:
            self.kept = sqlite3.connect(":memory:")
            self.sql.backup(self.kept)

    def restore(self):
        if "://" in self.place:
            back = (f"DELETE FROM {one}; INSERT INTO {one} SELECT * FROM {self.name}_kept.{one};"
                    for one in self.tables)  # fmt: skip
            self.sql.execute("BEGIN;" + "".join(back) + "COMMIT")
        else:
            self.kept.backup(self.sql)


@pytest.fixture(params=["sqlite", "postgresql"])
def served(request, tmp_path):
    fast_passwords()
    place = tmp_path / "hidden-place"
    if request.param == "postgresql":
        place = f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"
    found = Served(place, pm.load("armman"), jobs=0, wait=2.0)
    found.desk.programme().plan(BUDGET)
    found.client("Paul").post("/week/approve", data={"round": 1, "attempt": 1})
    yield found
    found.desk.close()


def parameters(route):
    """The names of a route's parameters: in the path, in the query, in the body."""
    flat, body = route.dependant, [one.alias for one in route.dependant.body_params]
    is_form = route.body_field is not None and isinstance(route.body_field.field_info, Form)
    if body and not is_form:
        (kind,) = (one.field_info.annotation for one in flat.body_params)
        assert inspect.isclass(kind)
        assert issubclass(kind, BaseModel)
        body = list(kind.model_fields)
    named = ([one.alias for one in part] for part in (flat.path_params, flat.query_params))
    return *named, body, is_form


def spoil(rng, value):
    """A value like this one, but wrong in one place."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        name = rng.choice(list(value))
        return {**value, name: spoil(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        return [spoil(rng, value[0]), *value[1:]]
    return rng.choice(VALUES)


def filled(rng, names, most):
    """Values for the parameters with these names; up to `most` of them are wrong."""
    given = {name: GOOD[name] for name in names if name in GOOD and rng.random() < 0.8}
    for name in rng.sample(names, min(len(names), rng.randint(0, most))):
        given[name] = spoil(rng, GOOD.get(name))
    return given


def text(value):
    return value if isinstance(value, str) else "" if value is None else str(value)


def request_of(rng, route, method):
    """A random request: its path, and what httpx takes."""
    in_path, in_query, in_body, is_form = parameters(route)
    path = route.path
    for name, value in {**dict.fromkeys(in_path, "1"), **filled(rng, in_path, 1)}.items():
        told = quote(text(value), safe="", errors="surrogatepass") or "%20"
        path = re.sub(r"\{" + name + r"\}", lambda _, told=told: told, path)
    query = filled(rng, [*in_query, *["name", "format"] * (rng.random() < 0.2)], 2)
    path += "?" + urlencode({k: text(v) for k, v in query.items()}, errors="surrogatepass")
    headers = dict(rng.sample(HEADERS, 1) if rng.random() < 0.15 else [])
    if method == "GET":
        return path, {"headers": headers}
    given = filled(rng, in_body, 2)
    if is_form:
        flat = {name: one if isinstance(one, list) else [one] for name, one in given.items()}
        pairs = [(name, text(value)) for name, values in flat.items() for value in values]
        content, kind = urlencode(pairs, errors="surrogatepass").encode(), "x-www-form-urlencoded"
        if route.name == "preview_import":
            bound = "--b\r\nContent-Disposition: form-data; name="
            file = f'{bound}"kind"\r\n\r\n{rng.choice(["join", "states", "x"])}\r\n{bound}"file"; '
            named = rng.choice(["a.csv", "a.json", "a.parquet", "a.xlsx", "../a", "\0", ""])
            content = (
                f'{file}filename="{named}"\r\n\r\n'.encode() + rng.choice(TABLES) + b"\r\n--b--"
            )
            return path, {"content": content, "headers": {
                "content-type": "multipart/form-data; boundary=b", **headers}}  # fmt: skip
        return path, {
            "content": content,
            "headers": {"content-type": f"application/{kind}", **headers},
        }
    if in_body:
        content = rng.choice(TABLES) if rng.random() < 0.1 else json.dumps(given).encode()
        return path, {"content": content, "headers": {"content-type": KINDS[0], **headers}}
    kind = {"content-type": rng.choice(KINDS)}
    return path, {"content": rng.choice(TABLES), "headers": {**kind, **headers}}


def callers_of(served):
    """Everybody who may send requests: their rights, and the headers of their requests."""
    desk, callers = served.desk, []
    with desk.records.writing() as sql:
        for name, role in ROLES.items():
            cookie = f"{desk.sign_ins.cookie}={desk.sign_ins.begin(sql, name)}"
            callers.append((RIGHTS[role], {"cookie": cookie}))
        for right in sorted(RIGHTS["admin"]):
            token = accounts.add_token(sql, "Ada", "x", [right], served.clock())
            callers.append(({right}, {"authorization": f"Bearer {token}"}))
    return callers


def faults_of(found, route, rights, secrets):
    """What is wrong with an answer."""
    needed = RULES[route.name]
    faults = ["failed"] * (found.status_code >= 500)
    if not rights:
        faults += [f"shows {one}" for one in secrets if one in found.text]
    if needed is not EVERYBODY and not needed & rights:
        aside = found.headers.get("location", "").startswith("/sign-in")
        faults += ["not refused"] * (found.status_code // 100 != 4 and not aside)
    return faults


def test_random_requests_by_everybody(served):
    rng, callers, faults = random.Random(SEED), callers_of(served), {}
    place, ada = Place(served.place), callers[list(ROLES).index("Ada")][1]
    secrets = [*Path(served.place).parts[1:-1], "postgresql:", "calls.db", "Traceback", ".py"]
    place.keep()
    before = place.contents()
    with contextlib.closing(place.sql), served.client() as browser:

        def send(method, path, headers, **given):
            browser.cookies.clear()
            sent = {name: value.encode("latin-1") for name, value in headers.items()}
            return browser.request(method, path, headers=sent, **given)

        def attack(route, method, rights, who):
            moment, (path, given) = place.moment(), request_of(rng, route, method)
            found = send(method, path, **{**given, "headers": {**who, **given["headers"]}})
            here = faults_of(found, route, rights, secrets)
            if place.moment() != moment:
                if found.status_code >= 400:
                    here += ["refused, and wrote"] * (place.contents() != before)
                else:
                    pages = [
                        send("GET", one, ada) for one in ("/week", "/audit", "/people", "/users")
                    ]
                    here += [f"breaks {one.url}" for one in pages if one.status_code >= 500]
                place.restore()
            for one in here:
                about = (path[:300], given, sorted(rights), found.status_code, found.text[:300])
                faults.setdefault((one, method, route.name), []).append(about)

        for route in [route for part in ROUTE_MODULES for route in part.router.routes]:
            may = [one for one in callers if RULES[route.name] & one[0]] or callers
            tries = [(frozenset(), {})] * TRIES["outside"] + rng.choices(may, k=TRIES["inside"])
            for method in sorted(set(route.methods) - {"HEAD"}):
                for one in tries + [one for one in callers if one not in may]:
                    attack(route, method, *one)
    assert not faults, "\n".join(f"{key} {len(found)}: {found[0]}" for key, found in faults.items())
