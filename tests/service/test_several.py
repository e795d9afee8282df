"""Several programmes on one server: what belongs to one is worth nothing in another."""

import re

import pytest
from starlette.testclient import TestClient

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.service import Settings
from prefermab.service.auth import accounts
from prefermab.service.auth.access import RULES
from prefermab.service.auth.settings import name_of
from prefermab.service.auth.signing import LIMITS
from prefermab.service.several import create_several, router
from services import BUDGET, ORIGIN, PASSWORD, SAME, Clock, fast_passwords, people

OTHER = "another long password"
USERS = {
    "calls": {"Paul": "planner", "Ana": "field worker", "Ada": "admin"},
    "visits": {"Paul": "viewer", "Vera": "viewer", "Ada": "viewer"},
}
"""Ada has another password in each."""


class Several:
    """Two programmes, `calls` with a list and `visits` without one."""

    def __init__(self, folder, model):
        self.clock, settings = Clock(), []
        for number, name in enumerate(USERS):
            place = str(folder / f"{name}.db")
            with pm.Programme(place, model) as programme:
                programme.keep_place("armman")
                programme.join(people(12 + number))
            settings.append(Settings(place, name=name_of(place)))
        self.app = create_several(settings, clock=self.clock, model=model)
        self.desks = self.app.state.desks
        for name, users in USERS.items():
            for user, role in users.items():
                own = OTHER if (name, user) == ("visits", "Ada") else PASSWORD
                with self.desks[name].records.writing() as sql:
                    link = accounts.add_user(sql, user, role, self.clock())
                    accounts.use_link(sql, link, "", accounts.HASHER.hash(own), self.clock())
        self.desks["calls"].programme().plan(BUDGET)

    def client(self, name=None, password=PASSWORD):
        """A browser, signed in on the first page unless without a name."""
        client = TestClient(
            self.app, ORIGIN, raise_server_exceptions=False, follow_redirects=False, headers=SAME
        )
        if name is not None:
            found = client.post("/sign-in", data={"name": name, "password": password})
            assert found.status_code == 303, found.text
        return client


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    fast_passwords()
    found = Several(tmp_path_factory.mktemp("several"), pm.load("armman"))
    yield found
    for desk in found.desks.values():
        desk.close()


def test_the_first_page_lists_the_programmes_that_somebody_may_see(several):
    browser = several.client()
    assert browser.get("/").headers["location"] == "/sign-in"
    assert "calls" not in browser.get("/sign-in").text
    page = several.client("Paul").get("/").text
    assert page.index("calls") < page.index("visits")
    assert re.findall(r"<dd>(\d+)</dd>", page) == ["1", "12", "1", "13"], "rounds and people"
    assert page.count("Last list: round 1") == 1
    assert "Nothing was planned so far" in page
    ana = several.client("Ana")
    assert "visits" not in ana.get("/").text
    assert ana.get("/p/calls/").headers["location"] == "/p/calls/week"
    assert ana.get("/p/calls/week").text.count("☐") > 0
    assert several.client("Vera").get("/").text.count("<h2>") == 1


def test_a_user_of_one_programme_cannot_reach_another(several):
    ana, calls = several.client("Ana"), several.desks["calls"]
    assert ana.get("/p/visits/week").headers["location"] == "/p/visits/sign-in?next=/week"
    assert ana.get("/p/visits/api/v1/people").status_code == 401
    secret = next(cookie.value for cookie in ana.cookies.jar if cookie.name == "prefermab-calls")
    planted = several.client()
    planted.cookies.set("prefermab-visits", str(secret))
    assert planted.get("/p/visits/api/v1/me").status_code == 401
    planted.cookies.set("prefermab-calls", str(secret))
    assert planted.get("/p/calls/api/v1/me").json()["name"] == "Ana"
    with calls.records.writing() as sql:
        token = accounts.add_token(sql, "Paul", "x", ["read"], several.clock())
        link = accounts.new_link(sql, "Ana", several.clock())
    bearer = {"authorization": f"Bearer {token}"}
    assert several.client().get("/p/calls/api/v1/people", headers=bearer).status_code == 200
    assert several.client().get("/p/visits/api/v1/people", headers=bearer).status_code == 401
    assert several.client().get(f"/p/calls/welcome/{link}").status_code == 200
    assert several.client().get(f"/p/visits/welcome/{link}").status_code == 400
    assert several.client().get("/p/other/week").status_code == 404
    for path in ("/p/calls/../visits/api/v1/people", "/p/calls/%2e%2e/visits/api/v1/people"):
        assert ana.get(path).status_code in (401, 404)


def test_a_role_holds_in_its_own_programme_only(several):
    paul = several.client("Paul")
    assert paul.post("/p/visits/api/v1/plans", json={"budget": 1}).status_code == 403
    ada = several.client("Ada")
    assert ada.get("/p/calls/users").status_code == 200
    assert ada.get("/p/visits/users").headers["location"].startswith("/p/visits/sign-in")
    link = ada.post("/p/calls/api/v1/users", json={"name": "Bo", "role": "viewer"}).json()["link"]
    assert link.startswith("/p/calls/welcome/")
    other = several.client("Ada", OTHER)
    assert other.get("/p/visits/week").status_code == 200
    assert other.get("/p/visits/users").status_code == 403
    assert other.get("/p/calls/week").status_code == 303


def test_wrong_passwords_are_limited_on_the_first_page_too(several, monkeypatch):
    browser = several.client()
    for name in ("Vera", "nobody"):
        wrong = {"name": name, "password": "wrong"}
        answers = [browser.post("/sign-in", data=wrong).status_code for _ in range(7)]
        assert answers == [401] * LIMITS["pair"] + [429] * (7 - LIMITS["pair"])
    hashed = []
    monkeypatch.setattr("prefermab.service.several.verify", lambda *_: hashed.append(1))
    assert browser.post("/sign-in", data=wrong).status_code == 429
    assert not hashed, "what is refused costs no time"
    several.clock.now += 3600
    other_site = {"sec-fetch-site": "cross-site"}
    form = {"name": "Vera", "password": PASSWORD}
    assert browser.post("/sign-in", data=form, headers=other_site).status_code == 403
    assert browser.get("/sign-in", headers={"host": "evil.example"}).status_code == 421


def test_every_link_of_a_programme_stays_in_it(several):
    ada = several.client("Ada")
    pages = ["week", "week/plan", "week/change?id=1", "record", "record/late", "people", "groups",
             "people/person?id=1", "what-if", "import", "models", "audit", "users"]  # fmt: skip
    for path in pages:
        page = ada.get(f"/p/calls/{path}")
        assert page.status_code == 200, path
        links = re.findall(r'(?:href|action|src)="(/[^"]*)"', page.text)
        strange = [
            one for one in links if not one.startswith(("/p/calls/", "/static/")) and one != "/"
        ]
        assert strange == [], path
    assert 'aria-current="page">Audit' in ada.get("/p/calls/audit").text
    approved = ada.post("/p/calls/week/approve", data={"round": 1, "attempt": 1})
    assert approved.headers["location"] == "/p/calls/week?said=approved"
    assert ada.get("/p/calls/sw.js").status_code == 200
    invited = ada.post("/p/calls/users", data={"name": "Cy", "role": "viewer"}).text
    assert f"{ORIGIN}/p/calls/welcome/" in invited
    served = ada.get("/p/calls/api/v1/openapi.json").json()["servers"]
    assert served == [{"url": "/p/calls"}]


def test_metrics_are_those_of_the_programme(several):
    paul, ada = several.client("Paul"), several.client("Ada")
    paul.get("/p/visits/api/v1/deviations")
    ada.get("/p/calls/api/v1/deviations")
    for client, name, number in ((paul, "visits", 13), (ada, "calls", 12)):
        text = client.get(f"/p/{name}/metrics").text
        assert 'prefermab_requests_total{route="deviations",status="200"} 1.0' in text
        assert f"prefermab_people {number}.0" in text
        assert "/p/" not in text


def test_signing_out_on_the_first_page_ends_all_sessions(several):
    paul = several.client("Paul")
    paul.post("/p/calls/sign-out")
    assert paul.get("/").text.count("<h2>") == 1, "visits goes on"
    again = several.client("Paul")
    assert again.post("/sign-out").headers["location"] == "/sign-in"
    assert again.get("/").status_code == 303
    assert again.get("/p/calls/week").status_code == 303


def test_routes_have_rules_and_names_differ(several, tmp_path):
    assert {getattr(route, "name", None) for route in router.routes} <= set(RULES)
    folders = [desk.settings.models_folder for desk in several.desks.values()]
    assert len(set(folders)) == 2
    same = [str(tmp_path / folder / "calls.db") for folder in "ab"]
    with pytest.raises(pm.InputError, match="need different names, not calls, calls"):
        dispatch(["serve", *same])
