"""Programmes on SQLite and on a real PostgreSQL server: the same results, and nothing lost."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import sqlalchemy as sa
from test_programme import PEOPLE, frame

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.errors import BusyError, OutdatedError, StorageError
from prefermab.programme.store import migrating, rows
from prefermab.programme.store.audit import put_audit
from prefermab.programme.store.connections import parse_place
from prefermab.programme.store.database import Database
from prefermab.programme.store.frames import first_difference
from prefermab.programme.store.plans import find_plan
from prefermab.programme.store.schema import METADATA, decode_id, encode_id
from programmes import FirstCome

KINDS = ["sqlite", "postgresql"]


@pytest.fixture
def places(server, tmp_path):
    """A place for a new programme on either database."""

    def place(kind):
        if kind == "sqlite":
            return str(tmp_path / f"{uuid.uuid4().hex}.db")
        return f"{server.address}#p{uuid.uuid4().hex[:20]}"

    return place


@pytest.fixture(params=KINDS)
def place(request, places):
    return places(request.param)


def rows_of(place, statement):
    """Runs a statement on the database of a programme, without the package."""
    if "://" not in place:
        with contextlib.closing(sqlite3.connect(place)) as sql, sql:
            return sql.execute(statement).fetchall()
    address, _, name = place.rpartition("#")
    with psycopg.connect(address) as sql:
        sql.execute("SELECT set_config('search_path', %s, false)", (name,))
        cursor = sql.execute(statement)
        return cursor.fetchall() if cursor.description else []


def story(place, ids):
    """Some rounds with everything in them; returns all that can be read."""
    one, two, three, four, five = ids
    people = PEOPLE.with_columns(id=pl.Series([one, two, three, four]), tiny=pl.lit(-0.0))
    with pm.Programme(place, FirstCome(), who="anna") as programme:
        programme.join(people, why="first village")
        programme.plan(2, pm.Rules(cooldown=1))
        done = frame(id=[one, two], action=["call", "visit"], reached=[False, True])
        programme.record(done.with_columns(why=pl.lit("é 'x'; --")), over_budget=True)
        programme.observe(frame(id=[three, one], state=["fair", "bad"], age=[0.1, 1e-300]))
        programme.leave([four])
        programme.join(frame(id=[five], state=["bad"], rounds_since_action=[3], town=["Łódź"]))
        programme.plan(1)
        programme.plan(2, pm.Rules(cooldown=1), again=True)
        programme.record()
        programme.join(frame(id=[four], state=["good"]))
        correction = frame(id=[two], action=["call"])
        programme.record(correction, round=1, correct=True, partial=True, over_budget=True)
        programme.plan(2, waiting=3)
        programme.last_round = 9
        kept = programme.history()
        frames = [
            kept.people, kept.states, kept.actions, kept.corrections.drop("corrected"), kept.log,
            kept.plans.drop("made", "closed"), kept.listed, programme.roster(),
            programme.deviations(), programme.audit().drop("at", "digest", "hash"),
        ]  # fmt: skip
        for round, attempt in kept.plans.select("round", "attempt").rows():
            plan = programme.replay(round, attempt)
            told = json.dumps([plan.asked, plan.facts, plan.status, plan.model])
            frames += [plan.inputs, plan.frame, pl.DataFrame({"told": [told]})]
        programme.verify_audit()
    return frames


@pytest.mark.parametrize(
    "ids", [[1, 10, 9, -3, 2**63 - 1], ["a", "10", "9", "É", '"'], ["1", "02", "-3", "0", "é"]]
)
def test_both_databases_give_the_same_bits(places, ids):
    file, other = (story(places(kind), ids) for kind in KINDS)
    assert len(file) == len(other) == 22
    for one, two in zip(file, other, strict=True):
        assert first_difference(one, two) is None


TEXTS = ["", " ", "a,b", 'say "x"', "\\.", "\\N", "a\nb\r\n", "'; --", "É\t", "NULL", None, "0"]
TABLES = ["people", "columns", "stays", "states", "actions", "deviations"]
NUMBERS = [
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    1 / 3,
    2,
    123456789.125,
    1e22,
    -7.5,
    1e-7,
    3,
    0,
]


def test_many_rows_are_written_as_few_are(places, monkeypatch):
    found = []
    for many in (1, 10**9):
        monkeypatch.setattr(rows, "FEWEST_ROWS_TO_COPY", many)
        place = places("postgresql")
        story(place, ["1", "02", "-3", "0", "é"])
        with pm.Programme(place, FirstCome()) as programme:
            people = frame(id=[f"new {n}" for n in range(12)], state=["bad"] * 12)
            programme.join(people.with_columns(text=pl.Series(TEXTS), x=pl.Series(NUMBERS)))
            programme.last_round = None
            programme.plan(5, again=True)
            done = frame(id=["1", "new 0", "new 7", "é"], action=["call"] * 4)
            why = pl.Series([*TEXTS[:3], "x" * 100])
            programme.record(done.with_columns(why=why), over_budget=True)
            with programme.database.reading() as sql:
                tables = [METADATA.tables[name] for name in TABLES]
                found.append([sql.execute(sa.select(one)).fetchall() for one in tables])
    assert found[0] == found[1]
    assert sum(map(len, found[0])) > 60


def test_rows_that_copy_refuses_are_told_in_a_sentence(places, monkeypatch):
    monkeypatch.setattr(rows, "FEWEST_ROWS_TO_COPY", 1)
    with pm.Programme(places("postgresql"), FirstCome()) as programme:
        for who, said in (("\0", "invalid byte sequence"), ("nobody", "foreign key")):
            given = {"id": [who], "round": [1], "state": [0.5]}
            with pytest.raises(StorageError, match=f"PostgreSQL says '.*{said}"):  # noqa: SIM117
                with programme.database.writing() as sql:
                    rows.put_rows(sql, METADATA.tables["states"], given, "state")
        programme.join(PEOPLE)
        assert programme.roster().height == 4


@pytest.mark.parametrize(
    "given", [0, -7, 10**18, "7", "-0", "0", "007", "", '"7"', "x y", "-", "é"]
)
def test_an_id_comes_out_of_postgresql_as_it_went_in(given):
    found = decode_id(encode_id(given))
    assert (found, type(found)) == (given, type(given))


def test_tables_are_those_that_the_migrations_make(place):
    pm.Programme(place, FirstCome()).close()
    database = Database(place, 1.0, begin=False)
    with database.reading() as sql:
        look = sa.inspect(sql)
        for table in METADATA.sorted_tables:
            assert {one["name"] for one in look.get_columns(table.name)} == set(table.c.keys())
        assert migrating.version_of(sql, migrating.VERSION_TABLE) == migrating.NEWEST_VERSION
    database.close()


def test_many_programmes_live_in_one_database(places):
    first, second = places("postgresql"), places("postgresql")
    with pm.Programme(first, FirstCome()) as one, pm.Programme(second, FirstCome()) as two:
        one.join(PEOPLE)
        assert (one.roster().height, two.roster().height) == (4, 0)
        with one.database.writing():
            two.join(PEOPLE)  # a writer of another programme is not waited for


def test_who_reads_and_who_writes_do_not_wait_for_each_other(place):
    given = {"model": FirstCome(), "wait": 0.2}
    with pm.Programme(place, **given) as one, pm.Programme(place, **given) as two:
        one.join(PEOPLE)
        members = sa.text("SELECT count(*) FROM stays WHERE gone IS NULL")
        with one.database.reading() as sql:
            assert sql.execute(members).scalar() == 4
            two.leave([1])
            assert two.roster().height == 3
            assert sql.execute(members).scalar() == 4  # as it was when the transaction began
        assert one.roster().height == 3


def test_a_plan_is_the_same_beside_any_plan_that_is_known(tmp_path):
    with pm.Programme(tmp_path / "calls.db", FirstCome()) as programme:
        programme.join(frame(id=range(200), state=["bad"] * 200, x=range(200)))
        for budget in range(1, 5):
            programme.observe(frame(id=[budget], state=["good"]))
            programme.plan(budget, again=True)
        plans = [programme.planned(1, attempt) for attempt in range(1, 5)]
        assert len({plan.inputs.write_json() for plan in plans}) == 4
        for plan in plans:
            for near in plans:
                with programme.database.reading() as sql:
                    found = find_plan(sql, 1, plan.attempt, near)
                assert first_difference(found.inputs, plan.inputs) is None
                assert first_difference(found.frame, plan.frame) is None


def test_a_file_is_whole_between_two_calls_also_while_it_is_open(tmp_path):
    file, copy = tmp_path / "calls.db", tmp_path / "copy.db"
    with pm.Programme(file, FirstCome()) as programme:
        programme.join(PEOPLE)
        programme.plan(2)
        shutil.copy(file, copy)
        with pm.Programme.open(copy, FirstCome()) as other:
            assert first_difference(other.planned().frame, programme.planned().frame) is None
            assert other.verify_audit() == programme.verify_audit()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["calls.db", "copy.db"]


def test_readers_and_writers_go_on_while_a_plan_is_made(place):
    seen = []

    def look():
        with pm.Programme.open(place, FirstCome(), wait=0.2) as other:
            seen.append(other.roster().height)
            other.observe(frame(id=[2], state=["bad"]))
            with pytest.raises(BusyError, match=r"in use by another process.* within 0.2 seconds"):
                other.plan(1)

    model = FirstCome(on_plan=look)
    with pm.Programme(place, model) as programme:
        programme.join(PEOPLE)
        plan = programme.plan(1)
        assert seen == [4]
        assert plan.inputs.filter(id=2)["state"].to_list() == ["good"]  # as it was when it began
        model.on_plan = lambda: None
        with pytest.raises(pm.InputError, match="'state' of 2 is good in one and bad"):
            programme.plan(1)


def test_a_plan_starts_again_if_its_round_is_closed_meanwhile(place):
    calls = []

    def close():
        calls.append(1)
        if len(calls) == 2:
            with pm.Programme.open(place, FirstCome()) as other:
                other.record()

    with pm.Programme(place, FirstCome(on_plan=close)) as programme:
        programme.join(PEOPLE)
        programme.plan(1)
        assert programme.plan(2, again=True).round == 2
        assert len(calls) == 3
        assert programme.plans()["round"].to_list() == [1, 2]


def test_a_list_is_changed_as_a_whole_or_not_at_all(place):
    model = FirstCome()
    with pm.Programme(place, model) as programme:
        programme.join(PEOPLE)
        with pytest.raises(pm.InputError, match="round 1 is not planned yet"):
            programme.replan(lambda _, asked: asked, round=1)
        programme.plan(1)
        with pytest.raises(pm.InputError, match="need 'rules'"):
            programme.replan(lambda *_: {"budget": 2}, round=1)
        with pytest.raises(pm.InputError, match="budget must be a finite number of at least 0"):
            programme.replan(lambda _, asked: asked | {"budget": -1}, round=1)
        assert programme.replan(lambda _, asked: asked, round=1).attempt == 1
        new = programme.replan(lambda _, asked: asked | {"rules": pm.Rules(cooldown=1)}, round=1)
        assert (new.attempt, new.asked["rules"]["cooldown"]) == (2, 1)

        def close():
            with pm.Programme.open(place, FirstCome()) as other:
                other.record()

        model.on_plan = close
        with pytest.raises(OutdatedError, match="round 1 is not the current one, which is 2"):
            programme.replan(lambda _, asked: asked | {"budget": 2}, round=1)
        assert programme.plans()["budget"].to_list() == [1, 1]


def test_a_writer_waits_for_another_and_then_says_so(place):
    with pm.Programme(place, FirstCome()) as one, pm.Programme(place, FirstCome(), wait=0.1) as two:
        one.join(PEOPLE)
        with one.database.writing(), pytest.raises(BusyError, match="in use by another process"):
            two.leave([1])
        assert two.leave([1]) == 1


def test_the_audit_log_tells_who_and_why_and_is_proved(place):
    with pm.Programme(place, FirstCome(), who="anna") as programme:
        programme.join(PEOPLE, why="first village")
        programme.plan(2)
        programme.who = "ben"
        programme.record()
        programme.record(round=1)  # nothing changes, and nothing is told
        with programme.database.writing() as sql:
            put_audit(sql, "zoe", "sign-in", details={"from": "desk"})
        kept = programme.audit()
        assert kept.select("who", "what", "why").rows() == [
            ("anna", "begin", None), ("anna", "model", None), ("anna", "join", "first village"),
            ("anna", "plan", None), ("ben", "record", None), ("zoe", "sign-in", None),
        ]  # fmt: skip
        proof = programme.verify_audit()
        assert (proof.rows, proof.head) == (6, kept["hash"][-1])
        assert programme.verify_audit(kept["hash"][2]).kept == 3
        for wrong in ("", "x" * 3000, "a\0b"):
            with pytest.raises(pm.InputError, match=r"^why "):
                programme.leave([1], why=wrong)
        assert programme.roster().height == 4
    with pytest.raises(pm.InputError, match="who must be a text"):
        pm.Programme(place, FirstCome(), who=" ")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET who = 'x' WHERE number = 2",
        "DELETE FROM audit WHERE number = 2",
        "DELETE FROM audit",
    ],
)
def test_rows_of_the_audit_log_cannot_be_changed_or_removed(place, statement):
    pm.Programme(place, FirstCome()).close()
    with pytest.raises((sqlite3.Error, psycopg.Error), match="can only be added at its end"):
        rows_of(place, statement)
    if "://" not in place:
        with pytest.raises(sqlite3.Error, match="can only be added at its end"):
            rows_of(place, "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE number = 1")


TRICKS = [
    ("UPDATE audit SET why = 'nothing' WHERE number = 3", "row 3 (join, "),
    ("UPDATE audit SET at = '2020-01-01T00:00:00Z' WHERE number = 1", "row 1 (begin, "),
    ("DELETE FROM audit WHERE number = 3", "row 3 is missing; the next one is row 4"),
    ("DELETE FROM audit WHERE number > 3", "row 4 is missing: 5 rows were written, and the last 2"),
    ("DELETE FROM changes WHERE number = 3", "the rows that row 3 (join, "),
    ("UPDATE changes SET data = x'00' WHERE number = 4", "the rows that row 4 (plan, "),
    ("INSERT INTO changes VALUES (9, 'people', 0, x'00')", "rows for a row 9 that the log lacks"),
]


@pytest.mark.parametrize(("trick", "message"), TRICKS)
def test_whoever_gets_round_the_triggers_is_found_out(tmp_path, trick, message, capsys):
    place = str(tmp_path / "calls.db")
    with pm.Programme(place, FirstCome()) as programme:
        programme.join(PEOPLE)
        programme.plan(2)
        programme.record()
    dispatch(["audit", "verify", place])
    head = capsys.readouterr().out.split("hash of the last row: ")[1].split()[0]
    dispatch(["audit", "verify", place, "--head", head, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told == {"rows": 5, "head": head, "kept": 5, "since": 1}
    with contextlib.closing(sqlite3.connect(place)) as sql, sql:
        for when in ("update", "delete"):
            sql.execute(f"DROP TRIGGER audit_{when}")
        sql.executescript(trick)
    with pytest.raises(StorageError) as error:
        dispatch(["audit", "verify", place])
    assert message in str(error.value)


def test_only_a_hash_that_was_kept_elsewhere_shows_a_log_that_was_made_anew(tmp_path):
    heads = []
    for name in ("a.db", "b.db"):
        with pm.Programme(tmp_path / name, FirstCome(), who=name) as programme:
            heads.append(programme.verify_audit().head)
            with pytest.raises(StorageError, match="no row has the hash"):
                programme.verify_audit("0" * 64)
    with (
        pm.Programme(tmp_path / "b.db", FirstCome()) as programme,
        pytest.raises(StorageError, match="cut off at the end, or the whole log was replaced"),
    ):
        programme.verify_audit(heads[0])


def test_the_commands_take_an_address_and_never_show_its_password(places, tmp_path, capsys):
    place = places("postgresql").replace("postgres:@", "postgres:s3cret@")
    model, table = pm.load("armman"), tmp_path / "people.csv"
    people = frame(id=["Ana", "Bea"], state=["persuadable", "motivated"])
    people.with_columns(pl.lit(0.5).alias(n) for n in model.feature_names).write_csv(table)
    dispatch(["programme", "begin", place, "--model", "armman"])
    dispatch(["programme", "join", place, str(table), "--why", "a new village"])
    dispatch(["audit", "log", place, "--out", str(tmp_path / "audit.csv")])
    said = capsys.readouterr()
    assert "postgresql://postgres:***@/postgres#p" in said.out
    assert "2 people joined; 2 take part" in said.out
    assert "s3cret" not in said.out + said.err
    assert pl.read_csv(tmp_path / "audit.csv")["why"].to_list()[-1] == "a new village"


def test_addresses_that_cannot_be_used_are_told_in_one_sentence(server, places):
    address, mine = server.address, places("postgresql")
    pm.Programme(mine, FirstCome()).close()
    rows_of(mine, f"UPDATE {migrating.VERSION_TABLE} SET version_num = '9999'")
    theirs = f"t{uuid.uuid4().hex[:20]}"
    with server.connect() as sql:
        sql.execute(f"CREATE SCHEMA {theirs}")
        sql.execute(f"CREATE TABLE {theirs}.visits (x int)")
    nowhere = "postgresql://anna:s3cret@127.0.0.1:1/health"
    for place, message in (
        (f"{nowhere}#calls", r"no connection \(.*refused.*\); nothing was changed"),
        (
            f"{address}&password=s3cret".replace("/postgres?", "/none?") + "#calls",
            "no such database",
        ),
        (f"{address}#{theirs}", f"'{theirs}' holds tables that are not a programme's \\(visits\\)"),
        (mine, "has tables of version 9999, but this prefermab reads version 0003"),
        (nowhere, "names no programme; write one after it"),
        (f"{nowhere}#Calls!", "a name of at most 48 small letters"),
        (f"{nowhere}#pg_x", "a name of at most 48 small letters"),
        ("postgresql://anna:s3cret@h:x/db#calls", "cannot be read"),
        ("postgresql://anna:s3cret@h#calls", "names no database"),
        ("mysql://anna:s3cret@h/db#calls", "or an address, such as postgresql://"),
    ):
        with pytest.raises(pm.PrefermabError, match=message) as error:
            pm.Programme(place, FirstCome())
        assert "s3cret" not in str(error.value)
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(pm.InputError, match=r"there is no programme at .*#calls; Programme"):
        pm.Programme.open(f"{address}#calls", FirstCome())
    with server.connect() as sql:
        every = "SELECT to_regnamespace('calls'), count(*) FROM pg_class WHERE relname = 'visits'"
        assert sql.execute(every).fetchone() == (None, 1)


def test_a_user_whom_the_server_refuses_is_told(server):
    with server.connect() as sql:
        sql.execute("DROP ROLE IF EXISTS nurse")
        sql.execute("CREATE ROLE nurse LOGIN")
    place = server.address.replace("postgres:@", "nurse:s3cret@")
    with pytest.raises(pm.InputError, match=r"this user may not do that \(permission denied"):
        pm.Programme(f"{place}#nursery", FirstCome())
    unknown = server.address.replace("postgres:@", "nobody:s3cret@")
    with pytest.raises(pm.PrefermabError, match=r'role "nobody" does not exist') as error:
        pm.Programme(f"{unknown}#calls", FirstCome())
    assert "s3cret" not in str(error.value)
    with server.connect() as sql:
        sql.execute("DROP ROLE nurse")


def test_a_connection_that_breaks_is_told_and_made_again(server, places):
    place = places("postgresql")
    mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"

    def cut(programme):
        pid = programme.database._connection.connection.driver_connection.info.backend_pid
        with server.connect() as sql:
            sql.execute(mine, (pid,))
            while sql.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
                time.sleep(0.01)

    model = FirstCome()
    with pm.Programme(place, model) as programme:
        programme.join(PEOPLE)
        cut(programme)
        with pytest.raises(StorageError, match=r"no connection .*; nothing was changed"):
            programme.leave([1])
        assert programme.leave([1]) == 1
        with pytest.raises(StorageError, match="lost during a commit"):  # noqa: SIM117
            with programme.database.writing():
                cut(programme)
        model.on_plan = lambda: cut(programme)
        with pytest.raises(StorageError, match="no connection"):
            programme.plan(1)
        model.on_plan = lambda: None
        assert programme.plan(1).round == 1


def test_a_place_is_a_path_or_an_address():
    assert parse_place("a#b.db").path == Path("a#b.db")
    place = parse_place("postgres://anna@h/db?password=a%23b&sslmode=require#calls")
    assert place.url is not None
    assert (place.url.password, place.shown) == ("a#b", "postgresql://anna:***@h/db#calls")


def run(*arguments) -> dict[str, Any]:
    script = Path(__file__).parents[2] / "programmes.py"
    ran = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(params=KINDS)
def target(request, server, tmp_path):
    return tmp_path if request.param == "sqlite" else server.address


def test_nothing_confirmed_is_lost_when_killed_at_random_moments(target):
    told = run("kill", target, 24, os.getpid())
    assert told["kills"] == 24
    assert told["confirmed"] > 18
    assert told["under_way"] > 2


def test_two_processes_never_both_plan_the_same_round(target):
    told = run("race", target, 4)
    assert told["asked"] == told["stored"] == told["plans"] == 4
    assert (told["same"], told["refused"]) == (2, 2)


def test_a_crowd_of_processes_loses_nothing(target):
    told = run("crowd", target, 3, 2)
    assert told["join"] > 0


def test_a_new_file_and_those_beside_it_can_be_read_by_their_owner_only(tmp_path):
    """An existing file keeps its mode, and SQLite gives it to the files beside it."""
    before = os.umask(0)
    try:
        for mode in (0o600, 0o660):
            with pm.Programme(tmp_path / "calls.db", FirstCome()) as programme:
                if mode == 0o600:
                    programme.join(PEOPLE)
                programme.last_round = mode
                modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
            assert {"calls.db", "calls.db-shm", "calls.db-wal"} <= set(modes)
            assert set(modes.values()) == {mode}
            (tmp_path / "calls.db").chmod(0o660)
    finally:
        os.umask(before)


def test_a_flipped_bit_changes_nothing_or_is_told_in_a_sentence(tmp_path):
    told = run("damage", tmp_path, 40, 3)
    assert (told["silent"], told["traceback"]) == (0, 0)
    assert told["told"] > 3
    assert told["same"] > 20


def test_a_programme_on_a_full_disk_can_be_read(tmp_path):
    told = run("full", tmp_path, 2)
    assert [said.endswith("expected a file that can be written.") for said in told["said"]] == [
        True, True,
    ]  # fmt: skip
    assert told["left"] == 1


def test_changes_of_several_processes_all_hold(target):
    told = run("changes", target, 3, 12)
    assert told == {"confirmed": 36, "lost": 0, "made": 36}
