"""Tampering and damage: `verify` names what differs, and nothing damaged is used."""

import contextlib
import json
import re
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import sqlalchemy as sa
from test_databases import KINDS
from test_programme import PEOPLE, frame

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.errors import StorageError
from prefermab.programme.store.audit import row_hash
from prefermab.programme.store.covered import COVERED, NOT_COVERED
from prefermab.programme.store.database import Database
from prefermab.programme.store.migrating import APPLICATION
from prefermab.service.auth import accounts
from programmes import FirstCome
from services import Served, fast_passwords


@contextlib.contextmanager
def without_guards(place) -> Iterator[Any]:
    """SQL on a database without the triggers and foreign keys that refuse changes."""
    if "://" not in place:
        with contextlib.closing(sqlite3.connect(place)) as sql, sql:
            for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                sql.execute(f"DROP TRIGGER {name}")
            yield sql
        return
    address, _, name = place.rpartition("#")
    with psycopg.connect(address) as sql:
        sql.execute("SELECT set_config('search_path', %s, false)", (name,))
        sql.execute("SET session_replication_role = replica")
        yield sql


@pytest.fixture(scope="module", params=KINDS)
def served(request, server, tmp_path_factory):
    """A served programme in which each covered table has rows."""
    fast_passwords()
    place = tmp_path_factory.mktemp("audit")
    if request.param == "postgresql":
        place = f"{server.address}#p{uuid.uuid4().hex[:20]}"
    found = Served(place, pm.load("armman"))
    paul, ada = found.client("Paul"), found.client("Ada")
    late, mine = found.desk.programme().roster()["id"].to_list()[:2]
    api = "/api/v1"

    def ticks(round, *ids):
        marks = [{"id": one, "action": "call", "reached": False, "why": "ill"} for one in ids]
        return {"round": round, "marks": marks}

    sent = [
        paul.post(f"{api}/plans", json={"budget": 4}),
        paul.post("/week/approve", data={"round": 1, "attempt": 1}),
        paul.post(f"{api}/records?round=1&why=as+planned"),
        paul.post(f"{api}/marks", json=ticks(1, late)),
        paul.post(f"{api}/states", json=[{"id": 5, "state": "motivated", "feature_0": 0.25}]),
        paul.post(
            f"{api}/records?round=1&correct=true&yes=true&over_budget=true",
            json=[{"id": mine, "action": "call", "reached": True, "why": "asked for it"}],
        ),
        paul.post(f"{api}/people/leave", json={"ids": [12]}),
        paul.post(f"{api}/plans", json={"budget": 3}),
        paul.post(f"{api}/plans", json={"budget": 4, "again": True}),
        paul.post("/week/approve", data={"round": 2, "attempt": 2}),
        paul.post(f"{api}/marks", json=ticks(2, mine, 3)),
        ada.post(f"{api}/tokens", json={"label": "sheet", "scopes": ["read"]}),
        ada.post(f"{api}/users/Vera/link"),
        ada.put(f"{api}/programme/last-round", json={"last_round": 9}),
    ]
    assert [one.status_code for one in sent if one.status_code >= 400] == []
    found.desk.programme().verify_audit()
    yield found
    found.desk.close()


TAMPERINGS = {
    # people
    "a state": (
        "states",
        "UPDATE states SET state = 2 - state WHERE id = {5}",
        "id 5, round 2: state",
    ),
    "a state of an earlier round": (
        "states",
        "UPDATE states SET state = 9 WHERE id = {3}",
        "id 3, round 1: state is 9",
    ),
    "a state that nobody saw": (
        "states",
        "INSERT INTO states VALUES ({4}, 2, 0)",
        "id 4, round 2: this row is not in",
    ),
    "a state that is gone": (
        "states",
        "DELETE FROM states WHERE id = {5} AND round = 2",
        "id 5, round 2: this row is g",
    ),
    "the round of a state": (
        "states",
        "UPDATE states SET round = 7 WHERE id = {4}",
        "id 4, round 1: this row is gone",
    ),
    "an opt-out": (
        "people",
        "UPDATE people SET details = '{{\"opt_in\":false}}' WHERE id = {6}",
        "id 6: another value of details than in row .*join",
    ),
    "a feature": (
        "people",
        "UPDATE people SET details = replace(details, '0.25', '0.75') WHERE id = {5}",
        "id 5: another value of details than in row .*observe",
    ),
    "the order of people": (
        "people",
        "UPDATE people SET number = 99 WHERE id = {1}",
        "id 1: number is 99, and 1",
    ),
    "a person who never joined": (
        "people",
        "INSERT INTO people VALUES (77, {99}, '{{}}')",
        "id 99: this row is not in",
    ),
    "a person who is gone": (
        "people",
        "DELETE FROM people WHERE id = {8}",
        "id 8: this row is gone",
    ),
    "who takes part": (
        "stays",
        "UPDATE stays SET gone = 1 WHERE id = {7}",
        "id 7, joined 1: gone is 1, and e",
    ),
    "who left": ("stays", "UPDATE stays SET gone = NULL WHERE id = {12}", "id 12, joined 1: gone"),
    "when somebody joined": (
        "stays",
        "UPDATE stays SET joined = 0 WHERE id = {7}",
        "id 7, joined 0",
    ),
    "the kind of a column": (
        "columns",
        "UPDATE columns SET kind = 'text' WHERE name = 'feature_0'",
        "name feature_0: kind",
    ),
    # the model and other facts of the programme
    "a model's hash": ("models", "UPDATE models SET hash = 'x'", "number 1: hash is x"),
    "a model's first round": ("models", "UPDATE models SET since = 2", "since is 2, and 1 in"),
    "a model's place": (
        "meta",
        "UPDATE meta SET value = '\"/tmp/x\"' WHERE key = 'model_place'",
        "key model_place",
    ),
    "the last round": (
        "meta",
        "UPDATE meta SET value = '99' WHERE key = 'last_round'",
        "last_round",
    ),
    "corrected records": (
        "meta",
        "UPDATE meta SET value = '[]' WHERE key = 'corrections'",
        "key corrections: value",
    ),
    "the kind of ids": ("meta", "DELETE FROM meta WHERE key = 'ids'", "key ids: this row is gone"),
    # plans and records
    "a budget": (
        "plans",
        "UPDATE plans SET asked = replace(asked, '4', '9') WHERE round = 1",
        "asked is",
    ),
    "a list": (
        "plans",
        "UPDATE plans SET output = inputs WHERE round = 1",
        "another value of output",
    ),
    "the people of a plan": (
        "plans",
        "UPDATE plans SET inputs = output WHERE round = 2",
        "another value of inputs",
    ),
    "the model of a plan": ("plans", "UPDATE plans SET model = 'x' WHERE round = 1", "model is x"),
    "the gain of a plan": ("plans", "UPDATE plans SET facts = '{{}}' WHERE round = 1", "facts is"),
    "the software of a plan": (
        "plans",
        "UPDATE plans SET versions = '{{}}' WHERE round = 1",
        "versions is",
    ),
    "when a plan was made": ("plans", "UPDATE plans SET made = '2020' WHERE round = 1", "made is"),
    "a round that is open again": (
        "plans",
        "UPDATE plans SET status = 'planned', closed = NULL WHERE round = 1",
        "status is planned, and recorded in and closed is empty, and 2.* in row .*record",
    ),
    "an attempt that is not valid": (
        "plans",
        "UPDATE plans SET status = 'superseded' WHERE round = 2",
        "round 2, attempt 2: status is superseded, and planned in",
    ),
    "an attempt that nobody made": (
        "plans",
        "INSERT INTO plans SELECT round, 7, 'superseded', model, asked, versions, made, closed,"
        " facts, layout, inputs, output FROM plans WHERE round = 1",
        "attempt 7: this row is not in",
    ),
    "an attempt that is gone": (
        "plans",
        "DELETE FROM plans WHERE round = 2 AND attempt = 1",
        "round 2, attempt 1: this row is",
    ),
    "what was done": ("actions", "UPDATE actions SET action = 'x'", "round 1: action is x"),
    "a cost": ("actions", "UPDATE actions SET cost = 0.5", "cost is 0.5, and 1.0 in"),
    "who was reached": ("actions", "UPDATE actions SET reached = 0", "reached is 0, and 1 in"),
    "an action that nobody did": (
        "actions",
        "INSERT INTO actions VALUES ({10}, 1, 1, 'call', 1, 1)",
        "id 10, round 1: this row",
    ),
    "an action that is gone": ("actions", "DELETE FROM actions", "round 1: this row is gone"),
    "a reason": (
        "deviations",
        "UPDATE deviations SET why = 'x' WHERE why <> ''",
        "why is x, and a",
    ),
    "what was planned": ("deviations", "UPDATE deviations SET planned = 'x'", "planned is x"),
    "what was allowed": ("deviations", "UPDATE deviations SET allowed = 1 - allowed", "allowed is"),
    "a deviation that is gone": ("deviations", "DELETE FROM deviations", "this row is gone"),
    # the service
    "a viewer who is an admin": (
        "users",
        "UPDATE users SET role = 'admin' WHERE name = 'Vera'",
        "name Vera: role is admin, and viewer in",
    ),
    "a user who was added": (
        "users",
        "INSERT INTO users SELECT 'Eve', role, password, active, made FROM users "
        "WHERE name = 'Ada'",
        "name Eve: this row is not in the log",
    ),
    "a user who is gone": (
        "users",
        "DELETE FROM users WHERE name = 'Ana'",
        "Ana: this row is gone",
    ),
    "another password": (
        "users",
        "UPDATE users SET password = (SELECT password FROM users WHERE name = 'Paul') "
        "WHERE name = 'Ada'",
        "name Ada: another value of password than in",
    ),
    "a user who may sign in again": (
        "users",
        "UPDATE users SET active = NOT active WHERE name = 'Vera'",
        "Vera: active is",
    ),
    "a forged approval": (
        "approvals",
        "INSERT INTO approvals VALUES (2, 1, 'Paul', 1)",
        "round 2, attempt 1: this row",
    ),
    "who approved": ("approvals", "UPDATE approvals SET name = 'Vera'", "name is Vera, and Paul"),
    "an approval that is gone": ("approvals", "DELETE FROM approvals", "this row is gone"),
    "what a token may do": ("tokens", "UPDATE tokens SET scopes = 'admin'", "scopes is admin, and"),
    "whose token it is": ("tokens", "UPDATE tokens SET name = 'Vera'", "number 1: name is Vera"),
    "the secret of a token": (
        "tokens",
        "UPDATE tokens SET secret = 'x'",
        "another value of secret",
    ),
    "a link for another user": ("links", "UPDATE links SET name = 'Ada'", "name is Ada, and Vera"),
    "a tick": ("marks", "UPDATE marks SET reached = NOT reached", "round 2, person .*: reached is"),
    "who ticked": ("marks", "UPDATE marks SET name = 'Ana'", "name is Ana, and Paul in"),
    "a tick that is gone": ("marks", "DELETE FROM marks", "round 2, person .*: this row is gone"),
    "a late tick": ("late", "UPDATE late SET action = 'none'", "person 1: action is none"),
    "a late tick that is gone": ("late", "DELETE FROM late", "round 1, person 1: this row is gone"),
}


def test_a_list_of_tamperings_has_each_table_of_the_service_and_the_programme():
    assert {table for table, *_ in TAMPERINGS.values()} == set(COVERED)
    assert len(TAMPERINGS) >= 36


@pytest.mark.parametrize("what", TAMPERINGS)
def test_verify_says_which_row_of_which_table_differs(served, what):
    table, statement, message = TAMPERINGS[what]
    quoted = "://" in served.place  # there ids are texts
    ids = [f"'{n}'" if quoted else n for n in range(100)]
    with without_guards(served.place) as sql:
        sql.execute(f"CREATE TABLE saved AS SELECT * FROM {table}")
    try:
        with without_guards(served.place) as sql:
            assert sql.execute(statement.format(*ids)).rowcount > 0
        with pytest.raises(StorageError, match=f"^audit: .*{table}: .*({message})") as error:
            dispatch(["audit", "verify", served.place])
        assert "argon2" not in str(error.value)
    finally:
        with without_guards(served.place) as sql:
            sql.execute(f"DELETE FROM {table}")
            sql.execute(f"INSERT INTO {table} SELECT * FROM saved")
            sql.execute("DROP TABLE saved")


def test_every_table_and_column_is_covered_or_there_is_a_reason(served):
    database = Database(served.place, 5.0, begin=False)
    with database.reading() as sql:
        look = sa.inspect(sql)
        tables = {
            name: {c["name"] for c in look.get_columns(name)} for name in look.get_table_names()
        }
    database.close()
    assert set(tables) == set(COVERED) | set(NOT_COVERED)
    for name, known in COVERED.items():
        assert tables[name] == set(known.columns), name


def rebuilt(rows):
    """Rows of the audit log with numbers and hashes that fit, as a forger makes them."""
    before, made = "", []
    for number, row in enumerate(rows, 1):
        values = (number, *row[1:-1])
        before = row_hash(before, values)
        made.append((*values, before))
    return made


def cut_off(sql, rows):
    numbers = [row[0] for row in rows[-2:]]
    sql.execute("DELETE FROM plans")
    for number in numbers:
        sql.execute(f"DELETE FROM changes WHERE number = {number}")
    return rows[:-2]


def reorder(_, rows):
    return [*rows[:-2], rows[-1], rows[-2]]


def forge(_, rows):
    return [*rows[:2], (*rows[2][:2], "somebody else", *rows[2][3:]), *rows[3:]]


@pytest.mark.parametrize(("trick", "alone"), [(cut_off, None), (reorder, "rows that row"),
                                              (forge, None)])  # fmt: skip
def test_a_whole_log_that_was_made_anew_needs_a_hash_that_was_kept(tmp_path, trick, alone):
    place = str(tmp_path / "calls.db")
    with pm.Programme(place, FirstCome()) as programme:
        programme.join(PEOPLE)
        programme.plan(2)
        programme.leave([4])
        kept = programme.verify_audit().head
    with without_guards(place) as sql:
        log = sql.execute("SELECT * FROM audit ORDER BY number").fetchall()
        made = rebuilt(trick(sql, log))
        if trick is cut_off:
            sql.execute("UPDATE stays SET gone = NULL")
        sql.execute("DELETE FROM audit")
        sql.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", made)
        head = json.dumps({"number": made[-1][0], "hash": made[-1][-1]})
        sql.execute("UPDATE meta SET value = ? WHERE key = 'audit_head'", (head,))
    if alone is None:  # nothing in the database can show it
        dispatch(["audit", "verify", place])
    else:
        with pytest.raises(StorageError, match=alone):
            dispatch(["audit", "verify", place])
    with pytest.raises(StorageError, match=alone or "no row has the hash"):
        dispatch(["audit", "verify", place, "--head", kept])


@pytest.fixture
def old_file(tmp_path):
    """A file of 0.2.0, whose log stored no rows: two rounds, a correction, a user, an approval."""
    file = tmp_path / "calls.db"
    with contextlib.closing(sqlite3.connect(file)) as sql:
        script = Path(__file__).parents[2] / "data" / "programme-0.2.0.sql"
        sql.executescript(script.read_text())
        sql.execute(f"PRAGMA application_id = {APPLICATION}")
        sql.execute("PRAGMA user_version = 5")
    return file


def test_a_file_of_0_2_0_is_opened_replayed_and_covered_from_then_on(old_file, capsys):
    with pm.Programme.open(old_file, FirstCome()) as programme:
        for round, attempt in programme.plans().select("round", "attempt").rows():
            programme.replay(round, attempt)
        assert programme.audit()["what"].to_list()[-1] == "migrate"
        assert programme.verify_audit().since == 13
        programme.observe(frame(id=[1], state=["fair"]))
    dispatch(["audit", "verify", str(old_file)])
    assert "rows 1 to 12 are of an earlier version" in capsys.readouterr().out
    with without_guards(str(old_file)) as sql:
        sql.execute("UPDATE users SET role = 'viewer'")
    with pytest.raises(StorageError, match=r"users: name Ada: role is viewer, .* \(migrate\)"):
        dispatch(["audit", "verify", str(old_file)])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE actions SET cost = 9",
            "the record of round 1 was changed: it does not match row 7",
        ),
        ("UPDATE plans SET facts = '{}'", "plan 1 of round 1 was changed: it does not match row 4"),
    ],
)
def test_what_0_2_0_covered_is_verified_as_before(old_file, statement, message):
    with without_guards(str(old_file)) as sql:
        sql.execute(statement)
    with pytest.raises(StorageError, match=message):
        dispatch(["audit", "verify", str(old_file)])


def test_what_was_changed_by_something_else_is_not_planned_with(tmp_path):
    place = str(tmp_path / "calls.db")
    for statement, message in (
        ("UPDATE states SET state = 0 WHERE id = 1", "states: id 1, round 1: state is 0"),
        ("UPDATE people SET details = '{}' WHERE id = 2", "people: id 2: another value of details"),
        ("UPDATE stays SET gone = 1 WHERE id = 3", "stays: id 3, joined 1: gone is 1"),
        ("DELETE FROM states WHERE id = 3", "states: id 3, round 1: this row is gone"),
        (
            "UPDATE people SET details = x'ff' WHERE id = 1",
            "people: id 1: another value of details",
        ),
        (
            "UPDATE meta SET value = '{' WHERE key = 'ids'",
            "meta: key ids: value is {, and .whole numbers. in",
        ),
        ("UPDATE states SET state = 'x'", "states: the state of a row is of a wrong kind"),
    ):
        Path(place).unlink(missing_ok=True)
        with pm.Programme(place, FirstCome()) as programme:
            programme.join(PEOPLE)
            programme.plan(1)
            with without_guards(place) as sql:
                sql.execute(statement)
            for call in (
                programme.roster,
                programme.history,
                lambda: programme.plan(2, again=True),
            ):
                with pytest.raises(StorageError, match=f"calls.db is damaged, .*{message}"):
                    call()


def test_observing_somebody_again_mends_what_was_changed(tmp_path):
    with pm.Programme(tmp_path / "calls.db", FirstCome()) as programme:
        programme.join(PEOPLE)
        with without_guards(str(tmp_path / "calls.db")) as sql:
            sql.execute("UPDATE states SET state = 0 WHERE id = 1")
        programme.observe(frame(id=[1], state=["bad"]))
        assert programme.roster().filter(id=1)["state"].to_list() == ["bad"]
        programme.verify_audit()


def test_what_was_changed_by_something_else_is_not_stored_again_with_other_changes(
    served, tmp_path
):
    """Each entry of the log stores whole rows: what it does not change must be as it was."""
    with pm.Programme(tmp_path / "calls.db", FirstCome()) as programme:
        programme.join(PEOPLE.with_columns(opt_in=False, town=pl.lit("A")))
        with without_guards(str(tmp_path / "calls.db")) as sql:
            sql.execute("UPDATE people SET details = replace(details, 'false', 'true')")
        with pytest.raises(StorageError, match="people: id 1: another value of details"):
            programme.observe(frame(id=[1], state=["fair"], town=["B"]))
        with pytest.raises(StorageError, match="people: id 1: another value of details"):
            programme.verify_audit()

    records = served.desk.records
    with records.writing() as sql:
        link = accounts.new_link(sql, "Vera", served.clock())
    with without_guards(served.place) as sql:
        sql.execute("UPDATE users SET role = 'admin' WHERE name = 'Vera'")
    try:
        for change in (
            lambda sql: accounts.change_user(sql, "Vera", active=True),
            lambda sql: accounts.use_link(sql, link, "", "hash", served.clock()),
        ):
            with (
                pytest.raises(StorageError, match="users: name Vera: role is admin"),
                records.writing() as sql,
            ):
                change(sql)
    finally:
        with without_guards(served.place) as sql:
            sql.execute("UPDATE users SET role = 'viewer' WHERE name = 'Vera'")
    served.desk.programme().verify_audit()


def test_the_page_of_the_log_shows_each_row_once(served):
    vera, desk = served.client("Vera"), served.desk
    with desk.records.writing() as sql:
        for number in range(120):
            desk.note(sql, f"user {number % 3}", "test", {"town": f"Łódź 5% {number}"})
    shown, address = [], "/audit?what=test"
    while address:
        page = vera.get(address).text
        shown += re.findall(r'data-label="row">(\d+)', page)
        older = re.search(r'href="(/audit\?[^"]*before=\d+)">Older', page)
        address = older and older[1].replace("&amp;", "&")
    assert len(shown) == len(set(shown)) == 120
    assert shown == sorted(shown, key=int, reverse=True)
    assert vera.get("/audit?words=Łódź 5% 11").text.count('data-label="row"') == 11
    assert vera.get("/audit?who=user 1&words=5% 11").text.count('data-label="row"') == 3
