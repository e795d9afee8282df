"""The service: pages, the API, jobs and metrics."""

import functools
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import polars as pl
import pytest
import sqlalchemy

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.programme.store.frames import first_difference
from prefermab.service import create_app
from prefermab.service.auth import accounts
from prefermab.service.auth.database import JOBS, SERVICE_METADATA, Records
from prefermab.service.http import tables
from prefermab.service.work import jobs, worker
from prefermab.service.work import late as lateness
from prefermab.service.work.worker import work
from services import BUDGET, PASSWORD, Served, fast_passwords, people


@pytest.fixture(scope="module")
def model():
    return pm.load("armman")


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    fast_passwords()
    found = Served(tmp_path_factory.mktemp("served"), model)
    yield found
    found.desk.close()


def test_signing_in_leads_to_the_list(served):
    served.desk.programme().plan(BUDGET)
    browser = served.client()
    assert browser.get("/week").headers["location"] == "/sign-in?next=/week"
    found = browser.post("/sign-in", data={"name": "Paul", "password": PASSWORD, "next": "/week"})
    assert (found.status_code, found.headers["location"]) == (303, "/week")
    page = browser.get("/week").text
    assert page.count("☐") == BUDGET
    assert "Paul, planner" in page
    browser.post("/sign-out")
    assert browser.get("/week").status_code == 303


def test_field_workers_see_their_own_people(served):
    served.desk.programme().plan(BUDGET)
    _, every = served.desk.week(accounts.Account("Paul", "planner", frozenset({"read"})))
    mine = every.filter(list="chosen", worker="Ana").height
    assert 0 < mine < BUDGET
    assert served.client("Ana").get("/week").text.count("☐") == mine


def test_the_first_admin_comes_by_a_link_that_works_once(tmp_path, model):
    from starlette.testclient import TestClient

    from prefermab.service import Settings, create_app

    place = str(tmp_path / "new.db")
    with pm.Programme(place, model):
        pass
    app = create_app(Settings(place), model=model)
    with app.state.desk.records.writing() as sql:
        old, link = (accounts.first_link(sql, app.state.desk.clock()) for _ in range(2))
    browser = TestClient(app, "http://localhost", headers={"sec-fetch-site": "same-origin"})
    assert browser.get(f"/welcome/{old}").status_code == 400
    assert "first admin" in browser.get(f"/welcome/{link}").text
    form = {"name": "Ada", "password": PASSWORD, "again": PASSWORD}
    assert "Ada, admin" in browser.post(f"/welcome/{link}", data=form).text
    assert browser.post(f"/welcome/{link}", data=form).status_code == 400
    with app.state.desk.records.writing() as sql:
        assert accounts.first_link(sql, app.state.desk.clock()) is None
    app.state.desk.close()


def test_health_needs_no_account(served):
    assert served.client().get("/api/v1/health").json() == {"status": "ok"}
    assert served.client().get("/api/v1/health/ready").json()["status"] == "ok"


@pytest.fixture(scope="module")
def planner(served):
    return served.token("Paul", "read", "record", "plan")


@pytest.fixture(params=["sqlite"])
def fresh(request, tmp_path, model):
    """A programme of one's own, and a program that may do everything but manage users."""
    fast_passwords()
    place = tmp_path
    if request.param == "postgresql":
        place = f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"
    found = Served(place, model)
    yield found, found.token("Paul", "read", "record", "plan")
    found.desk.close()


def as_frame(response):
    """The table of an answer, by its media type."""
    readers = {"text/csv": pl.read_csv, "application/vnd.apache.parquet": pl.read_parquet}
    kind = response.headers["content-type"].partition(";")[0]
    return readers.get(kind, pl.read_json)(io.BytesIO(response.content))


def approved(program, **more):
    """The answer to the request for a list, which is then approved."""
    plan = program.post("/api/v1/plans", json={"budget": BUDGET, **more}).json()
    body = {"attempt": plan["attempt"]}
    assert program.post(f"/api/v1/plans/{plan['round']}/approve", json=body).status_code == 200
    return plan


def at_once(*calls):
    """Runs functions in threads of their own at the same time."""
    with ThreadPoolExecutor(len(calls)) as threads:
        for one in [threads.submit(call) for call in calls]:
            one.result()


RULES = {"cooldown": 1, "lock_ids": [5], "group_column": "worker", "min_share": {"Ana": 0.25}}


def test_the_same_plan_from_command_line_python_api_and_console(tmp_path, model, monkeypatch):
    """Bit for bit: the same frames, the same facts, the same inputs."""
    monkeypatch.chdir(tmp_path)
    options = ["--cooldown", "1", "--group", "worker", "--min-share", "Ana=0.25"]
    form = {"cooldown": "1", "group_column": "worker", "min_share": "Ana 25%"}
    lock = {"id": "5", "kind": "on", "why": "asked for it"}

    def by_line(served):
        dispatch(["programme", "plan", served.place, "--budget", "4", "--out", "list.csv",
                  "--lock-ids", "5", *options])  # fmt: skip

    def by_python(served):
        served.desk.programme().plan(4, pm.Rules(**RULES))

    def by_api(served):
        program = served.token("Paul", "plan")
        found = program.post("/api/v1/plans", json={"budget": 4, "rules": RULES})
        assert found.status_code == 200, found.text
        kind = {"accept": "application/vnd.apache.parquet"}
        sent = served.token("Vera", "read").get("/api/v1/plans/1/list", headers=kind)
        assert first_difference(as_frame(sent), served.desk.programme().planned(1).frame) is None

    def by_console(served):  # the form makes the list, a change by hand locks somebody in
        paul = served.client("Paul")
        for path, fields in (("/week/plan", {"budget": "4", **form}), ("/week/change", lock)):
            assert paul.post(path, data=fields).status_code == 303

    plans = {}
    for way in (by_python, by_line, by_api, by_console):
        served = Served(tmp_path / way.__name__, model)
        way(served)
        plans[way] = served.desk.programme().planned(1)
        served.desk.close()
    expected = plans[by_python]
    for way, plan in plans.items():
        assert first_difference(plan.frame, expected.frame) is None, way
        assert first_difference(plan.inputs, expected.inputs) is None, way
        assert (plan.facts, plan.model) == (expected.facts, expected.model), way


BOTH = pytest.mark.parametrize("fresh", ["sqlite", "postgresql"], indirect=True)


@BOTH
def test_columns_are_found_in_any_spelling_by_the_api_and_on_pages(fresh):
    served, program = fresh
    new = people(3, first=101).with_columns(opt_in=False, cost_call=9.0).rename(
        {"id": "ID", "state": "STATE", "opt_in": "Opt-In", "cost_call": "Cost Call"}
    )  # fmt: skip
    csv = {"content-type": "text/csv"}
    near = new.rename({"Opt-In": "opt_inn"})
    found = program.post("/api/v1/people", content=near.write_csv(), headers=csv)
    assert (found.status_code, "'opt_inn' is not read" in found.json()["detail"]) == (400, True)
    page = served.client("Paul").post(
        "/import", data={"kind": "join"}, files={"file": ("new.csv", new.write_csv().encode())}
    )
    assert "3 rows" in page.text
    found = program.post("/api/v1/people", content=new.write_csv(), headers=csv)
    assert found.json() == {"joined": 3}
    assert program.post("/api/v1/plans", json={"budget": 100}).json()["facts"]["opted_out"] == 3
    listed = as_frame(program.get("/api/v1/plans/1/list")).filter(pl.col("id") > 100)
    assert listed.select("opt_in", "cost_call", "action").unique().rows() == [(False, 9, "none")]


@BOTH
def test_a_column_that_is_nearly_opt_in_is_asked_about_by_the_api_and_the_page(fresh):
    served, program = fresh
    new = people(2, first=101).with_columns(optout=True).write_csv()
    program.post("/api/v1/people", content=new, headers={"content-type": "text/csv"})
    for ask in ("plans", "what-if"):
        body = {"budget": 4} if ask == "plans" else {"budgets": [4]}
        found = program.post(f"/api/v1/{ask}", json=body)
        assert found.status_code == 400
        assert "the column 'optout' is not read" in found.json()["detail"]
        ignored = program.post(
            f"/api/v1/{ask}", json={**body, "rules": {"ignore_columns": ["optout"]}}
        )
        assert ignored.status_code == 200
    paul, form = served.client("Paul"), {"budget": "4", "why": "again"}
    assert "&#39;optout&#39; is not read" in paul.post("/week/plan", data=form).text
    form |= {"ignore_columns": "optout"}
    assert paul.post("/week/plan", data=form).status_code == 303
    assert 'name="ignore_columns" value="optout"' in paul.get("/week/plan").text


@BOTH
@pytest.mark.parametrize(
    "name", ["id", "State", "opt-in", "rounds_since_seen", "cost_call", "worker"]
)
def test_a_column_that_holds_no_rounds_is_refused_as_last_column(fresh, name):
    _, program = fresh
    rules = {"cooldown": 1, "last_column": name}
    for ask, body in (("plans", {"budget": 4}), ("what-if", {"budgets": [4]})):
        found = program.post(f"/api/v1/{ask}", json={**body, "rules": rules})
        assert found.status_code == 400, found.text
        assert f"'{name}'" in found.json()["detail"]
    assert program.get("/api/v1/plans").json() == []


@BOTH
def test_a_worker_called_none_sees_nobody_who_has_no_worker(fresh, monkeypatch):
    """No new user gets this name, but one of an earlier version may have it."""
    monkeypatch.setattr(accounts, "RESERVED", ())
    served, program = fresh
    served.add("None", "field worker")
    new = people(2, first=101).drop("worker").write_csv()
    program.post("/api/v1/people", content=new, headers={"content-type": "text/csv"})
    none = served.client("None")
    assert none.get("/people/person?id=101").status_code == 403
    assert "person 101" not in none.get("/people").text
    # A person whose worker has this name is theirs.
    named = pl.DataFrame({"id": [101], "state": [None], "worker": ["None"]})
    served.desk.programme().observe(named)
    assert none.get("/people/person?id=101").status_code == 200
    assert none.get("/people/person?id=102").status_code == 403
    assert "person 101" in none.get("/people").text


def test_a_field_worker_whose_name_is_written_with_a_separate_accent_sees_their_people(served):
    served.add("Zoé", "field worker")
    new = people(2, first=201).with_columns(worker=pl.lit("Zoe\u0301 "))
    served.desk.programme().join(new)
    zoe = served.client("Zoé")
    assert "person 201" in zoe.get("/people").text
    assert zoe.get("/people/person?id=201").status_code == 200
    assert zoe.get("/people/person?id=1").status_code == 403


@BOTH
def test_no_change_of_the_list_that_was_answered_is_lost(fresh):
    """Four planners at once, each with forms that they opened before the others' changes."""
    served, program = fresh
    served.desk.programme().join(people(48, first=13))
    program.post("/api/v1/plans", json={"budget": BUDGET})
    answered = []

    def change(number):
        paul = served.client("Paul")
        for person in range(5 + number, 21, 4):
            form = {"id": person, "kind": "off", "why": "has died", "round": 1, "attempt": 1}
            if paul.post("/week/change", data=form).status_code == 303:
                answered.append(person)

    at_once(*(functools.partial(change, number) for number in range(4)))
    plan = program.get("/api/v1/plans/current").json()
    assert sorted(plan["asked"]["rules"]["exclude_ids"]) == sorted(answered)
    assert len(answered) == 16
    assert plan["attempt"] == 17


@BOTH
def test_lists_that_jobs_make_have_all_changes(fresh, model, monkeypatch):
    served, program = fresh
    monkeypatch.setattr(jobs, "start_worker", lambda _: None)
    program.post("/api/v1/plans", json={"budget": BUDGET})
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    chosen = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"].to_list()
    paul, seen = served.client("Paul"), {"why": "asked", "round": 1, "attempt": 1}
    for person, kind in ((chosen[0], "off"), (chosen[1], "off"), (chosen[0], "on")):
        found = paul.post("/week/change", data={"id": person, "kind": kind, **seen})
        assert found.headers["location"].startswith("/week/job/")
    assert program.post("/api/v1/plans", json={"budget": 2, "again": True}).status_code == 202

    def run():
        while work(served.desk.records, served.desk.settings, served.clock, model):
            pass
        served.desk.records.close()

    run()
    done = [program.get(f"/api/v1/jobs/{number}").json() for number in range(1, 5)]
    refused = [one["answer"]["detail"] for one in done if one["status"] == "failed"]
    assert len(refused) == 2, done
    assert all("somebody changed the list meanwhile" in said for said in refused)
    asked = program.get("/api/v1/plans/current").json()["asked"]
    held = (("exclude_ids", chosen[0]), ("exclude_ids", chosen[1]), ("lock_ids", chosen[0]))
    for (rule, person), job in zip(held, done, strict=False):
        assert (person in asked["rules"][rule]) == (job["status"] == "done"), job
    assert (done[3]["status"], asked["budget"]) == ("failed", BUDGET)


@BOTH
def test_the_api_records_by_approved_lists_only(fresh):
    served, program = fresh
    plan = program.post("/api/v1/plans", json={"budget": BUDGET}).json()
    one, other = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][:2]
    marks = {"round": 1, "marks": [{"id": one, "action": "call"}]}
    csv = {"content": f"id,action\n{one},call\n", "headers": {"content-type": "text/csv"}}

    def refused():
        tries = (
            program.post("/api/v1/marks", json=marks),
            program.post("/api/v1/marks/record?round=1"),
            program.post("/api/v1/records"),
            program.post("/api/v1/records?round=1", **csv),
        )
        return {(found.status_code, found.json()["detail"]) for found in tries}

    said = {(400, "the list of round 1 is not approved yet: ask a planner to do so.")}
    assert refused() == said
    assert (
        served.client("Ana").post("/api/v1/plans/1/approve", json={"attempt": 1}).status_code == 403
    )
    assert program.post("/api/v1/plans/1/approve", json={"attempt": 2}).status_code == 409
    assert program.post("/api/v1/plans/1/approve", json={"attempt": 1}).json()["approved"] == 1
    off = {"id": other, "kind": "off", "why": "has died", "attempt": plan["attempt"]}
    assert program.post("/api/v1/plans/1/change", json=off).json()["attempt"] == 2
    assert program.post("/api/v1/plans/1/change", json={**off, "kind": "on"}).status_code == 409
    again = {"budget": 2, "again": True, "attempt": 1}
    assert program.post("/api/v1/plans", json=again).status_code == 409
    alone = {"budget": 2, "attempt": 2}
    assert "needs again" in program.post("/api/v1/plans", json=alone).json()["detail"]
    assert refused() == said
    by_first = {**marks, "attempt": 1}
    assert program.post("/api/v1/marks", json=by_first).json() == {"stored": 0, "late": 1}
    assert as_frame(program.get("/api/v1/marks")).is_empty()
    assert program.post("/api/v1/plans/1/approve", json={"attempt": 2}).status_code == 200
    assert program.post("/api/v1/marks", json=by_first).json() == {"stored": 1, "late": 0}
    assert program.get("/api/v1/marks/late").json() == []
    assert program.post("/api/v1/records?round=1", **csv).json()["round"] == 1


@BOTH
def test_a_week_by_the_api(fresh):
    served, program = fresh
    new = people(3, first=101)
    csv = {"content-type": "text/csv"}
    found = program.post("/api/v1/people?why=new", content=new.write_csv(), headers=csv)
    assert found.json() == {"joined": 3}
    again = program.post("/api/v1/people?name=new.csv", content=new.write_csv(), headers=csv)
    assert again.status_code == 400
    assert again.headers["content-type"] == "application/problem+json"
    assert "new.csv: 3 people (101 in row 2" in again.json()["detail"]
    assert program.post("/api/v1/people/leave", json={"ids": [101], "why": "moved"}).json() == {
        "left": 1
    }
    seen = [{"id": 102, "state": "persuadable"}, {"id": 999, "state": "motivated"}]
    assert program.post("/api/v1/states", json=seen).status_code == 400
    assert program.post("/api/v1/states?skip_unknown=true", json=seen).json() == {"observed": 1}
    plan = approved(program)
    assert (plan["round"], plan["facts"]["chosen"]) == (1, BUDGET)
    assert program.post("/api/v1/plans/1/replay").json()["facts"] == plan["facts"]
    what_if = as_frame(program.post("/api/v1/what-if", json={"budgets": [1, 2]}))
    assert what_if["chosen"].to_list() == [1, 2]
    assert program.post("/api/v1/records").json() == {"round": 1, "otherwise": 0}
    done = [{"id": 1, "action": "call", "reached": True}]
    fixed = program.post("/api/v1/records?round=1&correct=true&partial=true&over_budget=true",
                         json=done)  # fmt: skip
    assert fixed.json()["round"] == 1
    assert program.get("/api/v1/programme").json()["round"] == 2
    for part in ("people", "states", "plans", "actions", "corrections", "log"):
        assert as_frame(program.get(f"/api/v1/history/{part}")).height > 0
    assert as_frame(program.get("/api/v1/people?format=csv")).height == 14
    timeline = program.get("/api/v1/people/102").json()
    assert timeline["rounds"][0]["state"] == "persuadable"
    told = program.get("/api/v1/audit").json()
    assert [row["who"] for row in told if row["what"] == "leave"] == ["Paul"]
    assert [row["why"] for row in told if row["what"] == "leave"] == ["moved"]
    assert program.post("/api/v1/audit/verify").json()["rows"] == len(told)
    assert program.get("/api/v1/deviations?round=1").status_code == 200
    assert program.put("/api/v1/programme/last-round", json={"last_round": 9}).json() == {
        "last_round": 9
    }
    planner = served.client("Paul")
    for page in ("/week", "/record", "/people", "/what-if", "/groups", "/models", "/audit"):
        assert planner.get(page).status_code == 200, page


@BOTH
def test_marks_become_the_record(fresh):
    served, program = fresh
    approved(program)
    chosen = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))
    ana = served.client("Ana")
    mine = chosen.filter(worker="Ana")["id"].to_list()
    theirs = chosen.filter(worker="Bea")["id"].to_list()
    now = served.clock()
    late = {"id": mine[0], "action": "call", "reached": False, "why": "no answer", "at": now - 5}
    early = {"id": mine[0], "action": "none", "at": now - 60}
    sent = [{"round": 1, "marks": [late]}, {"round": 1, "marks": [early]}]
    assert [ana.post("/api/v1/marks", json=one).json()["stored"] for one in sent] == [1, 0]
    assert ana.post("/api/v1/marks", json=sent[0]).json() == {"stored": 0, "late": 0}
    other = {"round": 1, "marks": [{"id": theirs[0], "action": "call"}]}
    assert ana.post("/api/v1/marks", json=other).status_code == 400
    assert ana.post("/api/v1/marks", json={**sent[0], "round": 2}).status_code == 400
    assert as_frame(ana.get("/api/v1/marks"))["reached"].to_list() == [False]
    left = {"id": theirs[0], "action": "none", "why": "moved away"}
    assert program.post("/api/v1/marks", json={"round": 1, "marks": [left]}).json()["stored"] == 1
    found = program.post("/api/v1/marks/record?round=1&rest=planned")
    assert found.json() == {"round": 1, "otherwise": 1}
    actions = as_frame(program.get("/api/v1/history/actions"))
    assert sorted(actions["id"]) == sorted(set(chosen["id"]) - {theirs[0]})
    assert actions.filter(id=mine[0])["reached"].to_list() == [False]
    assert program.get("/api/v1/deviations").json()[0]["why"] == "moved away"


@BOTH
def test_marks_that_come_after_the_round_correct_it_for_their_people_only(fresh):
    served, program = fresh
    approved(program)
    chosen = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))
    mine = chosen.filter(worker="Ana")["id"].to_list()
    theirs = chosen.filter(worker="Bea")["id"].to_list()
    ana, now = served.client("Ana"), served.clock()
    left = {"id": theirs[0], "action": "none", "why": "moved away"}
    program.post("/api/v1/marks", json={"round": 1, "marks": [left]})
    program.post("/api/v1/marks/record?round=1&rest=planned")
    before = as_frame(program.get("/api/v1/history/actions"))
    missed = {"id": mine[0], "action": "call", "reached": False, "why": "no answer", "at": now - 9}
    same = {"id": mine[1], "action": "call", "at": now - 9}
    sent = {"round": 1, "marks": [missed, same]}
    assert ana.post("/api/v1/marks", json=sent).json() == {"stored": 0, "late": 1}
    assert ana.post("/api/v1/marks", json=sent).json() == {"stored": 0, "late": 0}, "sent again"
    other = {"round": 1, "marks": [{"id": theirs[0], "action": "call"}]}
    assert "not among your people" in ana.post("/api/v1/marks", json=other).json()["detail"]
    back = {"round": 1, "marks": [{"id": mine[1], "action": None}]}
    assert "cannot be taken back" in ana.post("/api/v1/marks", json=back).json()["detail"]
    for at in (-1e18, -1):
        odd = {"round": 1, "marks": [{"id": mine[0], "action": "call", "at": at}]}
        assert "seconds since 1970" in ana.post("/api/v1/marks", json=odd).json()["detail"]
    unknown = {"round": -(10**20), "marks": [{"id": mine[0], "action": "call"}]}
    assert ana.post("/api/v1/marks", json=unknown).status_code == 400
    planner = {"round": 1, "marks": [{"id": mine[0], "action": "call"}]}
    assert program.post("/api/v1/marks", json=planner).json()["late"] == 0, "Ana's tick stays"
    assert before.equals(as_frame(program.get("/api/v1/history/actions"))), "nobody decided yet"
    assert [row["id"] for row in ana.get("/api/v1/marks/late").json()] == [str(mine[0])]
    accept = {"round": 1, "ids": [mine[0]], "accept": True, "why": "phone was offline"}
    assert ana.post("/api/v1/marks/late", json=accept).status_code == 403
    assert program.post("/api/v1/marks/late", json={**accept, "why": " "}).status_code == 400
    assert program.post("/api/v1/marks/late", json=accept).json() == {"round": 1, "decided": 1}
    assert program.post("/api/v1/marks/late", json=accept).status_code == 400
    after = as_frame(program.get("/api/v1/history/actions"))
    expected = before.with_columns(reached=pl.col("reached") & (pl.col("id") != mine[0]))
    assert after.sort("id").equals(expected.sort("id"))
    assert [row["why"] for row in program.get("/api/v1/deviations").json()] == ["moved away"]
    told = program.get("/api/v1/audit").json()[-2:]
    assert [(row["who"], row["what"], row["why"]) for row in told] == [
        ("Paul", "correct", "phone was offline"),
        ("Paul", "accept late marks", "phone was offline"),
    ]
    assert "Ana: call, not reached" in told[1]["details"]
    assert program.post("/api/v1/audit/verify").status_code == 200


@BOTH
def test_nobody_can_tick_while_the_round_is_closed_by_its_marks(fresh, monkeypatch):
    served, program = fresh
    approved(program)
    one, other = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][:2]
    mark = {"round": 1, "marks": [{"id": one, "action": "none", "why": "ill"}]}
    back = {"round": 1, "marks": [{"id": other, "action": None}]}
    first = {"round": 1, "marks": [{"id": other, "action": "none", "why": "away"}]}
    assert program.post("/api/v1/marks", json=first).json()["stored"] == 1
    record, answers = pm.Programme.record, []

    def slowly(programme, *args, **given):
        with monkeypatch.context() as impatient:
            impatient.setattr(served.desk, "records", Records(served.place, 0.05))
            for sent in (mark, back):
                answers.append(program.post("/api/v1/marks", json=sent).json()["title"])
        return record(programme, *args, **given)

    monkeypatch.setattr(pm.Programme, "record", slowly)
    assert program.post("/api/v1/marks/record?round=1").status_code == 200
    assert answers == ["Busy", "Busy"]
    assert program.post("/api/v1/marks", json=mark).json() == {"stored": 0, "late": 1}
    assert "cannot be taken back" in program.post("/api/v1/marks", json=back).json()["detail"]
    assert [(row["id"], row["why"]) for row in program.get("/api/v1/marks/late").json()] == [
        (str(one), "ill")
    ]


@BOTH
def test_a_round_is_closed_and_its_marks_are_settled_together_or_not_at_all(fresh, monkeypatch):
    served, program = fresh
    approved(program)
    one = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][0]
    mark = {"round": 1, "marks": [{"id": one, "action": "none", "why": "ill"}]}
    program.post("/api/v1/marks", json=mark)
    with monkeypatch.context() as broken:
        broken.setattr("prefermab.service.work.late.settle_marks", lambda *_: 1 / 0)
        assert program.post("/api/v1/marks/record?round=1").status_code == 500
    assert served.desk.head().round == 1
    assert as_frame(program.get("/api/v1/marks"))["why"].to_list() == ["ill"]
    assert program.post("/api/v1/marks/record?round=1").status_code == 200
    assert program.get("/api/v1/marks/late").json() == []
    late = {"round": 1, "marks": [{"id": one, "action": "call"}]}
    assert program.post("/api/v1/marks", json=late).json()["late"] == 1
    accept = {"round": 1, "ids": [one], "accept": True, "why": "she says so"}
    with monkeypatch.context() as broken:
        broken.setattr("prefermab.service.work.desk.Desk.note", lambda *_: 1 / 0)
        assert program.post("/api/v1/marks/late", json=accept).status_code == 500
    assert one not in as_frame(program.get("/api/v1/history/actions"))["id"]
    assert len(program.get("/api/v1/marks/late").json()) == 1


@pytest.mark.parametrize("how", ["the API", "the command line"])
def test_ticks_that_differ_from_a_record_made_by_a_table_wait_for_a_decision(fresh, how):
    served, program = fresh
    approved(program)
    one, other = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][:2]
    marks = [{"id": one, "action": "none", "why": "ill"}, {"id": other, "action": "call"}]
    program.post("/api/v1/marks", json={"round": 1, "marks": marks})
    if how == "the API":
        assert program.post("/api/v1/records").json()["round"] == 1
    else:
        dispatch(["programme", "record", served.place])
    assert [row["id"] for row in program.get("/api/v1/marks/late").json()] == [str(one)]
    assert "1 tick came after its round" in served.client("Paul").get("/week").text
    approved(program)
    program.post("/api/v1/marks", json={"round": 2, "marks": [{"id": other, "action": "call"}]})
    told = [row for row in program.get("/api/v1/audit").json() if row["what"] == "late mark"]
    assert [row["who"] for row in told] == ["the service"]
    assert f'"{one}": "Paul: none (ill)"' in told[0]["details"]
    assert [row["id"] for row in program.get("/api/v1/marks/late").json()] == [str(one)]


@BOTH
def test_a_later_tick_replaces_one_that_a_table_left_behind(fresh):
    served, program = fresh
    approved(program)
    one = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][0]
    now = served.clock()

    def mark(**given):
        return program.post("/api/v1/marks", json={"round": 1, "marks": [{"id": one, **given}]})

    assert mark(action="none", why="ill", at=now - 50).json()["stored"] == 1
    with pm.Programme(served.place, served.model) as programme:
        programme.record(pl.DataFrame({"id": [one], "action": ["call"]}))
    assert mark(action="call", reached=False, at=now - 10).json() == {"stored": 0, "late": 1}
    waiting = program.get("/api/v1/marks/late").json()
    assert [(row["action"], row["reached"]) for row in waiting] == [("call", False)]
    assert mark(action=None, at=now).json() == {"stored": 0, "late": 0}
    assert program.get("/api/v1/marks/late").json() == []
    told = "".join(row["details"] for row in program.get("/api/v1/audit").json())
    assert "none (ill)" in told, "the reason of a tick is kept"


def test_ticks_of_people_whom_the_record_cannot_have_are_shown_and_not_accepted(fresh):
    served, program = fresh
    approved(program)
    gone, other = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][:2]
    mark = {"round": 1, "marks": [{"id": gone, "action": "call", "reached": False}]}
    program.post("/api/v1/marks", json=mark)
    program.post("/api/v1/people/leave", json={"ids": [gone]})
    approved(program, again=True)
    assert program.post("/api/v1/marks/record?round=1").status_code == 200
    assert "not in the plan" in served.client("Paul").get("/record/late").text
    decision = {"round": 1, "ids": [gone, other], "accept": True, "why": "asked"}
    found = program.post("/api/v1/marks/late", json=decision)
    assert found.status_code == 400
    assert f"{gone} not in the plan" in found.json()["detail"]
    leave = {**decision, "accept": False, "seen": served.clock() - 1}
    assert "look again" in program.post("/api/v1/marks/late", json=leave).json()["detail"]
    leave["seen"] = served.clock()
    assert program.post("/api/v1/marks/late", json=leave).json()["decided"] == 1


def test_a_round_is_not_closed_by_a_list_that_was_made_again_meanwhile(fresh, monkeypatch):
    served, program = fresh
    approved(program)
    close = lateness.close_by_marks

    def slowly(*args, **given):
        monkeypatch.undo()
        with pm.Programme(served.place, served.model) as other:
            other.plan(BUDGET - 1, again=True, why="somebody left")
        close(*args, **given)

    monkeypatch.setattr(lateness, "close_by_marks", slowly)
    assert "look again" in program.post("/api/v1/marks/record?round=1").json()["detail"]
    program.post("/api/v1/plans/1/approve", json={"attempt": 2})
    assert program.post("/api/v1/marks/record?round=1").status_code == 200


def test_pages_wait_for_nobody_who_writes(fresh):
    served, program = fresh
    approved(program)
    one = as_frame(program.get("/api/v1/plans/current/list?list=chosen"))["id"][0]
    mark = {"round": 1, "marks": [{"id": one, "action": "none", "why": "ill"}]}
    program.post("/api/v1/marks", json=mark)
    paul = served.client("Paul")
    with pm.Programme(served.place, served.model) as programme:
        programme.record()
        with programme.database.writing():
            assert "1 tick came after its round" in paul.get("/week").text
            assert paul.get("/record/late").status_code == 200
            assert len(program.get("/api/v1/marks/late").json()) == 1
    seen = served.clock.now
    served.clock.now += 60
    form = {"round": "1", "ids": [str(one)], "accept": "yes", "why": "asked", "seen": str(seen)}
    assert paul.post("/record/late", data=form).headers["location"].endswith("said=corrected")


@BOTH
def test_numbers_that_no_database_has_are_refused(fresh):
    served, program = fresh
    approved(program)
    large = 10**30
    for path in (f"plans/{large}", f"plans/1?attempt={large}", f"plans/{-large}/list",
                 f"deviations?round={large}", f"jobs/{large}", f"people/{large}"):  # fmt: skip
        found = program.get(f"/api/v1/{path}")
        assert found.status_code in (400, 404), (path, found.text)
    assert program.post(f"/api/v1/marks/record?round={large}").status_code == 400
    assert program.post(f"/api/v1/records?round={large}").status_code == 400
    assert program.post(f"/api/v1/plans/{large}/replay").status_code == 400
    paul = served.client("Paul")
    for path in (
        f"week?at={large}",
        f"people?at={large}",
        f"audit?before={large}",
        f"audit?before={-large}",
        f"plan/{large}",
    ):
        assert paul.get(f"/{path}").status_code in (200, 400, 404), path
    assert paul.post("/models/replay", data={"round": str(large)}).status_code in (400, 404)


def test_true_is_neither_a_person_nor_a_number(served):
    paul = served.token("Paul", "plan", "record", "read")
    for path, given in (
        ("plans", {"budget": True}),
        ("plans/current/change", {"id": True, "kind": "off", "why": "moved"}),
        ("people/leave", {"ids": [True]}),
        ("marks", {"round": 1, "marks": [{"id": True, "action": "call"}]}),
        ("what-if", {"budgets": [1, False]}),
    ):
        found = paul.post(f"/api/v1/{path}", json=given)
        assert found.status_code == 422, path
        assert "neither true nor false" in found.json()["detail"]


@BOTH
def test_jobs_are_done_cancelled_and_found_lost(fresh, model, monkeypatch):
    served, program = fresh
    started = []
    monkeypatch.setattr(jobs, "start_worker", started.append)
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    asked = program.post("/api/v1/plans", json={"budget": BUDGET})
    assert (asked.status_code, asked.headers["location"]) == (202, "/api/v1/jobs/1")
    assert len(started) == 1
    desk = served.desk
    assert work(desk.records, desk.settings, served.clock, model)
    done = program.get("/api/v1/jobs/1").json()
    assert (done["status"], done["answer"]["facts"]["chosen"]) == ("done", BUDGET)
    assert not work(desk.records, desk.settings, served.clock, model)
    program.post("/api/v1/plans", json={"budget": 99})
    work(desk.records, desk.settings, served.clock, model)
    failed = program.get("/api/v1/jobs/2").json()
    assert failed["status"] == "failed"
    assert "is planned already" in failed["answer"]["detail"]
    program.post("/api/v1/what-if", json={"budgets": [1, 2]})
    assert program.delete("/api/v1/jobs/3").json()["status"] == "cancelled"
    assert program.delete("/api/v1/jobs/3").status_code == 400
    program.post("/api/v1/plans/1/replay")
    child = subprocess.Popen(["sleep", "600"])
    with desk.records.writing() as sql:
        jobs.claim(sql, desk.settings, served.clock())
        here = f"{socket.gethostname()} {child.pid} {jobs.process_start(child.pid)}"
        sql.execute(JOBS.update().where(JOBS.c.number == 4).values(process=here))
    assert program.get("/api/v1/jobs/4").json()["status"] == "running"
    child.kill()
    child.wait()
    lost = program.get("/api/v1/jobs/4").json()
    assert lost["status"] == "lost"
    assert "its process ended" in lost["answer"]["detail"]
    assert as_frame(program.get("/api/v1/jobs"))["status"].to_list() == [
        "lost", "cancelled", "failed", "done",
    ]  # fmt: skip


PUBLIC = ("environ", "cmdline")
"""What tools show of a process."""


def job_processes():
    """The job processes that this process has started and that have not ended."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = [int(one) for task in tasks for one in task.read_text().split()]
    alive = [child for child in children if jobs.process_start(child)]
    words = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in alive}
    return [one for one in alive if b"service.work.worker" in words[one]]


def statuses(program):
    """The status of each job, the first one first."""
    return as_frame(program.get("/api/v1/jobs"))["status"].reverse().to_list()


@BOTH
def test_asked_all_at_once_two_jobs_run_and_the_others_wait_in_order(fresh, monkeypatch):
    served, program = fresh
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    asked = jobs.MOST_UNFINISHED + 3
    with ThreadPoolExecutor(asked) as pool:
        answers = list(
            pool.map(lambda _: program.post("/api/v1/what-if", json={"budgets": [1]}), range(asked))
        )
    assert len(job_processes()) == 2
    full = [answer for answer in answers if answer.status_code == 429]
    assert len(full) == 3
    assert full[0].json()["detail"].startswith("10 jobs of Paul are waiting or running already:")
    assert full[0].headers["retry-after"] == "30"
    # Somebody else's queue is not full.
    other = served.token("Vera", "read").post("/api/v1/what-if", json={"budgets": [1]})
    assert other.json()["status"] == "waiting"
    assert statuses(program) == ["running"] * 2 + ["waiting"] * 9
    seen = {part: Path(f"/proc/{job_processes()[0]}/{part}").read_text() for part in PUBLIC}
    assert not [part for part, text in seen.items() if served.place in text]
    with served.desk.records.reading() as sql:
        rows = sql.execute(sqlalchemy.select(JOBS.c.process).order_by(JOBS.c.number)).scalars()
        first, second = (int(row.split()[1]) for row in rows if row)
    # A process that is killed, and one whose job is cancelled, make room for the next job each.
    os.kill(first, signal.SIGKILL)
    until(lambda: statuses(program)[:4] == ["lost", "running", "running", "waiting"])
    program.delete("/api/v1/jobs/2")
    assert statuses(program)[:5] == ["lost", "cancelled", "running", "running", "waiting"]
    until(lambda: second not in job_processes())
    assert len(job_processes()) == 2
    for number in range(11, 2, -1):
        program.delete(f"/api/v1/jobs/{number}")
    until(lambda: job_processes() == [])


def until(true):
    """Waits until something is true."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true")


@BOTH
def test_a_server_that_starts_again_goes_on_with_the_jobs(fresh, model, monkeypatch):
    served, program = fresh
    started = []
    monkeypatch.setattr(jobs, "start_worker", started.append)
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    for _ in range(3):
        program.post("/api/v1/what-if", json={"budgets": [1]})
    with served.desk.records.writing() as sql:
        # A process of this machine that has ended, and one of another machine.
        for number, where in ((1, socket.gethostname()), (2, "elsewhere")):
            given = {"status": "running", "process": f"{where} 99999999 1"}
            sql.execute(JOBS.update().where(JOBS.c.number == number).values(given))
    started.clear()
    again = create_app(served.desk.settings, clock=served.clock, model=model)
    with served.desk.records.reading() as sql:
        rows = sql.execute(sqlalchemy.select(JOBS.c.status).order_by(JOBS.c.number)).scalars()
        assert list(rows) == ["lost", "running", "waiting"]
    assert len(started) == 1
    served.clock.now += jobs.LOST_AFTER + 1
    assert statuses(program) == ["lost", "lost", "waiting"]
    again.state.desk.close()


@BOTH
def test_a_job_that_is_cancelled_from_another_machine_ends_itself(fresh, monkeypatch):
    served, program = fresh
    monkeypatch.setattr(jobs, "start_worker", [].append)
    monkeypatch.setattr(worker, "BEAT_EVERY", 0.01)
    desk = served.desk
    program.post("/api/v1/jobs/learn", json={"rewards": {"motivated": 1}})
    with desk.records.writing() as sql:
        jobs.claim(sql, desk.settings, served.clock())
        sql.execute(JOBS.update().values(process="elsewhere 1 1"))
    served.clock.now += jobs.LOST_AFTER - 1
    assert program.get("/api/v1/jobs/1").json()["status"] == "running"
    assert program.delete("/api/v1/jobs/1").json()["status"] == "cancelled"
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        worker.beat(desk.settings, 1, served.clock, threading.Event())


def test_cancelling_kills_the_process_and_leaves_nothing_half_written(fresh, model, monkeypatch):
    served, program = fresh
    desk, child = served.desk, subprocess.Popen(["sleep", "600"])

    class Stopped:
        """What was learned; the process comes to an end between the model and its report."""

        def __init__(self, *_, **__):
            self.model = model

        def report(self, _):
            raise SystemExit

    monkeypatch.setattr("prefermab.programme.learning.learn.learn", Stopped)
    monkeypatch.setattr(jobs, "start_worker", [].append)
    program.post("/api/v1/jobs/learn", json={"rewards": {"motivated": 1}})
    with pytest.raises(SystemExit):
        work(desk.records, desk.settings, served.clock, model)
    assert [file.name for file in desk.settings.models_folder.iterdir()] == ["draft-of-job-1"]
    named = {"model": "draft-of-job-1"}
    assert served.client("Ada").put("/api/v1/programme/model", json=named).status_code == 400
    with desk.records.writing() as sql:
        here = f"{socket.gethostname()} {child.pid} {jobs.process_start(child.pid)}"
        sql.execute(JOBS.update().values(process=here))
    assert program.delete("/api/v1/jobs/1").json()["status"] == "cancelled"
    assert child.wait(10) == -9
    assert list(desk.settings.models_folder.iterdir()) == []


@BOTH
def test_no_name_in_a_request_or_a_job_is_executed(fresh, model, monkeypatch, tmp_path):
    served, program = fresh
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "start_worker", [].append)
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    evil, admin, desk = "evil.py:Evil", served.client("Ada"), served.desk
    named = {"model": evil, "why": evil}
    assert admin.put("/api/v1/programme/model", json=named).status_code == 400
    rules = {"exclude_column": evil, "lock_ids": [evil]}
    for path, asked in (
        ("plans", {"budget": 1, "rules": rules, "why": evil}),
        ("plans", {"budget": 1, "domain": evil, "model": evil}),
        ("jobs/learn", {"rewards": {evil: 1.0}}),
        ("jobs/learn", {"rewards": {"motivated": 1.0}, "recipe": evil}),
        ("states", [{"id": 1, "state": evil}]),
        ("marks", {"round": 1, "marks": [{"id": evil, "action": evil, "why": evil}]}),
    ):
        assert program.post(f"/api/v1/{path}", json=asked).status_code in (202, 400, 422), path
    texts = dict.fromkeys(("budget", "rules", "domain", "recipe", "model", "state"), evil)
    lies = {"plan": texts, "replay": {"round": evil}, "what-if": texts,
            "learn": {**texts, "rewards": {"motivated": 1.0}}, evil: texts}  # fmt: skip
    for kind, asked in lies.items():
        program.post("/api/v1/jobs/learn", json={"rewards": {"motivated": 1.0}})
        with desk.records.writing() as sql:
            last = sqlalchemy.select(sqlalchemy.func.max(JOBS.c.number)).scalar_subquery()
            given = {"kind": kind, "asked": json.dumps(asked)}
            sql.execute(JOBS.update().where(JOBS.c.number == last).values(given))
        while work(desk.records, desk.settings, served.clock, model):
            pass
    statuses = as_frame(program.get("/api/v1/jobs"))["status"].unique().to_list()
    assert statuses == ["failed"]
    assert not (tmp_path / "executed").exists()


def test_a_file_where_the_server_was_started_is_not_imported_by_jobs(fresh, monkeypatch, tmp_path):
    _, program = fresh
    monkeypatch.chdir(tmp_path)
    (tmp_path / "polars.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    program.post("/api/v1/jobs/learn", json={"rewards": {"motivated": 1.0}})
    until = time.monotonic() + 60
    while (job := program.get("/api/v1/jobs/1").json())["status"] in ("waiting", "running"):
        assert time.monotonic() < until
        assert not (tmp_path / "executed").exists()
        time.sleep(0.1)
    assert job["status"] == "failed"
    assert "log" in job["answer"]["detail"]


def test_a_model_that_a_job_learns_takes_over_the_programme(fresh, model, monkeypatch):
    served, program = fresh
    monkeypatch.setattr(jobs, "start_worker", [].append)
    for week in range(4):
        approved(program)
        program.post("/api/v1/records")
        seen = people().select("id", state=pl.col("state").reverse() if week % 2 else "state")
        program.post("/api/v1/states", json=seen.to_dicts())
    rewards = {"motivated": 1, "persuadable": 0.5, "lost cause": 0}
    asked = program.post("/api/v1/jobs/learn", json={"rewards": rewards, "steps": 5})
    assert (asked.status_code, asked.headers["location"]) == (202, "/api/v1/jobs/1")
    assert work(served.desk.records, served.desk.settings, served.clock, model)
    job = program.get("/api/v1/jobs/1").json()
    assert (job["status"], job["share"], job["answer"]["model"]) == ("done", 1, "job-1"), job
    folder = served.desk.settings.models_folder
    assert [file.name for file in folder.iterdir()] == ["job-1"]
    assert (folder / "job-1" / "report" / "index.html").is_file()
    admin, named = served.client("Ada"), {"model": "job-1", "why": "learned from our own log"}
    before = program.get("/api/v1/programme").json()["model"]
    assert program.put("/api/v1/programme/model", json=named).status_code == 403
    now = admin.put("/api/v1/programme/model", json=named).json()["model"]
    assert now != before
    plan = approved(program)
    assert (plan["round"], plan["model"], plan["facts"]["chosen"]) == (5, now, BUDGET)
    assert program.post("/api/v1/plans/5/replay").json()["facts"] == plan["facts"]
    assert "cannot be told" in admin.get("/models").text


def test_metrics_count_requests_and_people(planner):
    planner.get("/api/v1/me")
    number = as_frame(planner.get("/api/v1/people")).height
    text = planner.get("/metrics").text
    assert 'prefermab_requests_total{route="me",status="200"}' in text
    assert f"prefermab_people {number}.0" in text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("text/csv", ".csv"), ("*/*", ".json"), ("application/json;q=0.1, text/csv", ".csv")],
)
def test_tables_are_sent_as_they_are_wanted(accept, kind):
    assert tables.preferred_kind(accept) == kind


def test_kinds_that_are_not_known_are_refused(planner):
    assert planner.get("/api/v1/people", headers={"accept": "image/png"}).status_code == 415
    assert planner.get("/api/v1/people?format=exe").status_code == 415
    sent = planner.post("/api/v1/people", content=b"x", headers={"content-type": "image/png"})
    assert sent.status_code == 415
    for body in (b"[1]", b"{", b'[{"id": [1]}]'):
        kind = {"content-type": "application/json"}
        assert planner.post("/api/v1/people", content=body, headers=kind).status_code == 400


def test_openapi_names_every_call(planner):
    paths = planner.get("/api/v1/openapi.json").json()["paths"]
    calls = {f"{verb} {path}" for path, verbs in paths.items() for verb in verbs}
    some = {"post /api/v1/plans", "get /api/v1/people/{person}", "delete /api/v1/jobs/{number}"}
    assert some <= calls


def test_another_model_takes_over_in_every_thread(fresh):
    served, _ = fresh
    admin = served.client("Ada")
    assert admin.put("/api/v1/programme/model", json={"model": "../x"}).status_code == 400
    named = {"model": "armman-paper", "why": "trial"}
    found = admin.put("/api/v1/programme/model", json=named)
    assert found.status_code == 200, found.text
    assert found.json()["model"] == admin.get("/api/v1/programme").json()["model"]


def test_tables_are_those_that_the_migration_makes(served):
    with served.desk.records.reading() as sql:
        seen = sqlalchemy.inspect(sql)
        for table in SERVICE_METADATA.sorted_tables:
            made = {column["name"] for column in seen.get_columns(table.name)} - {"number"}
            assert made == {column.name for column in table.columns} - {"number"}


def test_metrics_are_those_of_both_worker_processes(tmp_path, model):
    """One worker stands still while the other answers, then the other way round: whoever is asked
    for the metrics has counted what both have answered."""
    served = Served(tmp_path, model)
    program = served.token("Vera", "read")
    headers = {"authorization": program.headers["authorization"]}
    served.desk.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefermab", "serve", served.place, "--workers", "2"]
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=8)  # of connections, until the server listens
        with httpx.Client(base_url=address, transport=transport, timeout=60) as client:
            assert client.get("/api/v1/health").status_code == 200
        workers, text = worker_processes(server.pid), ""
        assert len(workers) == 2
        for one in workers:
            assert served.place not in Path(f"/proc/{one}/environ").read_text()
        for asleep in workers:
            os.kill(asleep, signal.SIGSTOP)
            try:
                with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
                    for _ in range(3):
                        assert client.get("/api/v1/me").status_code == 200
                    text = client.get("/metrics").text
            finally:
                os.kill(asleep, signal.SIGCONT)
        assert 'prefermab_requests_total{route="me",status="200"} 6.0' in text
        assert 'prefermab_request_seconds_count{route="me"} 6.0' in text
    finally:
        server.terminate()
        server.wait(60)


def worker_processes(parent):
    """The processes that a server has started to answer requests."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    commands = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in children}
    return [child for child, command in commands.items() if b"spawn_main" in command]
