"""The service: pages, the API, jobs and metrics."""

import pytest

import prefermab as pm
from prefermab.service import accounts
from services import BUDGET, PASSWORD, Served, fast_passwords


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
