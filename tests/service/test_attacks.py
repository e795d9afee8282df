"""The attack list: each attack is a test."""

import contextlib
import io
import json
import re
import threading
import uuid

import polars as pl
import pytest
import sqlalchemy as sa
import uvicorn
from starlette.testclient import TestClient

import damage
import prefermab as pm
from prefermab.cli import dispatch
from prefermab.programme.store.database import Database
from prefermab.service import several
from prefermab.service.app import ROUTE_MODULES
from prefermab.service.auth import accounts
from prefermab.service.auth.access import EVERYBODY, OWN_PEOPLE, RULES, Guarded
from prefermab.service.auth.access import ROLES as RIGHTS
from prefermab.service.auth.signing import LIMITS, WINDOW
from prefermab.service.http.guards import HEADERS
from prefermab.service.http.tables import MEDIA_TYPES, READING_UPLOADS
from services import BUDGET, ORIGIN, PASSWORD, ROLES, SAME, Served, fast_passwords, people

CSV = {"content-type": "text/csv"}
SCRIPT = "<script>alert(1)</script>"
SQL = ["' OR '1'='1", "1; DROP TABLE users; --", "x') UNION SELECT password FROM users --", '"; --']


@pytest.fixture(scope="module")
def model():
    return pm.load("armman")


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    fast_passwords()
    found = Served(tmp_path_factory.mktemp("served"), model, most_bytes=200_000)
    found.desk.programme().plan(BUDGET)
    yield found
    found.desk.close()


@pytest.fixture(scope="module")
def browsers(served):
    return {name: served.client(name) for name in ROLES} | {None: served.client()}


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request, tmp_path, model):
    """A programme of one's own on either database."""
    fast_passwords()
    place = tmp_path / "hidden"
    if request.param == "postgresql":
        place = f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"
    found = Served(place, model, wait=0.1)
    yield found
    found.desk.close()


def routes(app):
    """Every route: method, path with something for its parameters, and name."""
    assert {type(one).__name__ for one in app.router.routes} <= {"Guarded", "_IncludedRouter"}
    for route in [route for part in ROUTE_MODULES for route in part.router.routes]:
        assert isinstance(route, Guarded), f"{route} is not guarded"
        path = re.sub(r"\{[^}]+\}", "2", route.path)  # one of Ana's people
        for method in sorted(set(route.methods or ()) - {"HEAD"}):
            yield method, path, route.name


def pages_of(app):
    """The paths of all pages."""
    found = {path for method, path, _ in routes(app) if method == "GET"}
    return sorted(path for path in found if not path.startswith(("/api", "/static", "/metrics")))


def test_every_route_has_a_rule_and_every_rule_a_route(served):
    names = [name for _, _, name in routes(served.app)]
    assert sorted(names) == sorted(set(names))
    first = {getattr(route, "name", None) for route in several.router.routes}
    assert set(names) | first == set(RULES)


CHANGED = ("sign_out", "sign_in", "welcome")


def test_role_escalation_by_url(served, browsers):
    """Every route × every role: whoever may not is refused, before the body is looked at."""
    for method, path, name in routes(served.app):
        for who, browser in browsers.items():
            rights = RIGHTS[ROLES[who]] if who else frozenset()
            allowed = RULES[name] is EVERYBODY or bool(RULES[name] & rights)
            if allowed and method != "GET":
                continue  # what it does is for other tests
            found = browser.request(method, path, json={})
            if allowed:
                assert found.status_code not in (401, 403, 500), (name, who, found.text)
            elif who is None and method == "GET" and not path.startswith(("/api/", "/metrics")):
                assert (found.status_code, found.headers["location"][:9]) == (303, "/sign-in?")
            else:
                assert found.status_code == (403 if who else 401), (name, who, found.text)


def test_only_admins_manage_users_and_field_workers_only_their_own():
    of_role = {role: {name for name in RULES if RULES[name] & RIGHTS[role]} for role in RIGHTS}
    assert "add_user" in of_role["admin"]
    for role in ("viewer", "field worker", "planner"):
        assert not {"users", "add_user", "change_user", "user_link", "set_model"} & of_role[role]
    assert not {"plan", "record", "mark", "join", "leave", "learn"} & of_role["viewer"]
    assert not {"people_all", "history", "audit", "plans", "record"} & of_role["field worker"]


def test_a_token_has_no_more_rights_than_its_scopes_and_its_user(served):
    reader = served.token("Paul", "read")
    assert reader.get("/api/v1/plans").status_code == 200
    assert reader.post("/api/v1/plans", json={"budget": 1}).status_code == 403
    assert reader.post("/api/v1/tokens", json={"label": "x", "scopes": ["plan"]}).status_code == 403
    vera = served.client("Vera")
    more = vera.post("/api/v1/tokens", json={"label": "x", "scopes": ["admin"]})
    assert (more.status_code, "viewer" in more.json()["detail"]) == (400, True)
    made = vera.post("/api/v1/tokens", json={"label": "x", "scopes": ["read"], "days": 1}).json()
    program = served.client(authorization=f"Bearer {made['token']}")
    assert program.get("/api/v1/me").json()["rights"] == ["read"]
    served.clock.now += 86401
    assert program.get("/api/v1/me").status_code == 401
    served.clock.now -= 86401
    with served.desk.records.reading() as sql:
        assert made["token"] not in str(sql.exec_driver_sql("SELECT * FROM tokens").all())


def test_field_workers_see_nobody_elses_people(browsers):
    ana, every = browsers["Ana"], people()
    theirs = every.filter(worker="Bea")["id"].to_list()
    mine = every.filter(worker="Ana")["id"].to_list()
    seen = ana.get("/api/v1/people").json()
    assert sorted(row["id"] for row in seen) == mine
    assert {row["id"] for row in ana.get("/api/v1/plans/current/list").json()} == set(mine)
    assert [ana.get(f"/api/v1/people/{one}").status_code for one in (theirs[0], 999)] == [403, 403]
    assert ana.get(f"/api/v1/people/{mine[0]}").status_code == 200
    assert OWN_PEOPLE not in RULES["history"]


def test_csrf(served, browsers):
    """Another site cannot make a browser that is signed in change anything, nor sign it in."""
    paul = browsers["Paul"]
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
    ):
        for path in ("/api/v1/records", "/sign-out", "/sign-in", "/api/v1/people/leave"):
            found = paul.post(path, headers=headers, data={"name": "Paul", "password": PASSWORD})
            assert found.status_code == 403, (headers, path)
    plain = served.client("Paul")
    del plain.headers["sec-fetch-site"]
    assert plain.post("/sign-out").status_code == 403
    assert plain.post("/sign-out", headers={"origin": "http://localhost"}).status_code == 303
    assert paul.get("/week").status_code == 200
    assert "access-control-allow-origin" not in paul.options("/api/v1/people").headers


def test_session_fixation(served):
    """Signing in gives a new session; one that was planted or is old is worth nothing."""
    browser = served.client()
    browser.cookies.set("prefermab", "planted")
    browser.post("/sign-in", data={"name": "Vera", "password": PASSWORD})
    first = browser.cookies.get("prefermab", domain="localhost.local") or browser.cookies.jar
    secrets = [one.value for one in browser.cookies.jar if one.name == "prefermab"]
    assert first is not None
    assert "planted" not in secrets[-1]
    thief = served.client()
    thief.cookies.set("prefermab", secrets[-1])
    assert thief.get("/api/v1/me").status_code == 200
    browser.cookies.clear()
    browser.cookies.set("prefermab", secrets[-1])
    browser.post("/sign-in", data={"name": "Vera", "password": PASSWORD})
    assert thief.get("/api/v1/me").status_code == 401
    with served.desk.records.reading() as sql:
        stored = str(sql.exec_driver_sql("SELECT * FROM sessions").all())
    assert secrets[-1] not in stored


def test_sessions_end(served):
    browser, settings = served.client("Vera"), served.desk.settings
    cookie = served.client().post("/sign-in", data={"name": "Vera", "password": PASSWORD})
    said = cookie.headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=lax" in said
    before = served.clock.now
    served.clock.now += settings.idle + 1
    assert browser.get("/api/v1/me").status_code == 401
    served.clock.now, steps = before, 0
    while served.clock.now < before + settings.longest:
        assert browser.get("/api/v1/me").status_code == 200
        served.clock.now, steps = served.clock.now + settings.idle * 0.9, steps + 1
    assert steps > 5
    assert browser.get("/api/v1/me").status_code == 401
    served.clock.now = before


def test_users_who_may_no_longer_sign_in_are_out_at_once(served, browsers):
    served.add("Zoe", "planner")
    zoe, token = served.client("Zoe"), served.token("Zoe", "read")
    browsers["Ada"].patch("/api/v1/users/Zoe", json={"role": "viewer"})
    assert zoe.get("/api/v1/me").status_code == 401
    again = served.client("Zoe")
    browsers["Ada"].patch("/api/v1/users/Zoe", json={"active": False})
    assert [one.get("/api/v1/me").status_code for one in (again, token)] == [401, 401]
    last = browsers["Ada"].patch("/api/v1/users/Ada", json={"role": "viewer"})
    assert (last.status_code, "only admin" in last.json()["detail"]) == (400, True)


PATHS = (
    "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/%2e%2e/settings.py",
    "/static//etc/passwd", "/static/style.css/", "/static/..\\app.py", "/static/style.css%00",
    "//etc/passwd", "/api/v1/history/../../etc", "/week/..%2fusers", "/.env",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_path_tricks(browsers, path):
    found = browsers["Ada"].get(path)
    assert found.status_code in (400, 404, 422)
    assert "import" not in found.text


def test_model_names_are_no_paths(browsers):
    for name in ("../../etc", "/etc", "job-1/../../x", "armman/../sis"):
        found = browsers["Ada"].put("/api/v1/programme/model", json={"model": name})
        assert found.status_code == 400


def test_oversized_uploads(served):
    program = served.token("Paul", "plan")
    long = b"id,state\n" + b"x" * 300_000
    assert program.post("/api/v1/people", content=long, headers=CSV).status_code == 413

    def pieces():
        for _ in range(300):
            yield b"x" * 1000

    streamed = program.post("/api/v1/people", content=pieces(), headers=CSV)
    assert streamed.status_code == 413
    assert streamed.json()["detail"].startswith("a request may have at most")
    for length in ("-1", "1e9", "9" * 30):
        bad = program.post("/api/v1/people", content=b"", headers={**CSV, "content-length": length})
        assert bad.status_code == 413


UPLOADS = {ending.removeprefix("."): media for media, ending in MEDIA_TYPES.items()}


def test_small_files_are_refused_and_others_are_answered_meanwhile(served, tmp_path):
    """All bombs that may be sent: none ends the server, which answers others while it reads."""
    program, health = served.token("Paul", "plan"), served.client()
    damage.write_bombs(tmp_path)
    found, answered = {}, 0

    def send():
        for path in tmp_path.iterdir():
            if (ending := path.suffix.removeprefix(".")) in UPLOADS:
                body, kind = path.read_bytes(), {"content-type": UPLOADS[ending]}
                found[path.name] = program.post("/api/v1/people", content=body, headers=kind)

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive():
        assert health.get("/api/v1/health").status_code == 200
        answered += 1
    assert {name.rpartition(".")[2] for name in found} == {"csv", "json", "parquet", "xlsx"}
    assert answered > len(found)
    for name, answer in found.items():
        assert answer.status_code in (400, 413), name
        detail = answer.json()["detail"]
        assert "\n" not in detail, name
        assert "/tmp" not in detail, name


def test_tables_wait_only_a_moment_for_each_other(served, monkeypatch):
    monkeypatch.setattr("prefermab.service.http.tables.LONGEST_WAIT", 0.01)
    program = served.token("Paul", "plan")
    book = io.BytesIO()
    pl.DataFrame({"id": [1]}).write_parquet(book)
    kind = {"content-type": "application/vnd.apache.parquet"}
    with contextlib.ExitStack() as readers:
        for _ in range(2):
            assert READING_UPLOADS.acquire(timeout=10)
            readers.callback(READING_UPLOADS.release)
        found = program.post("/api/v1/people", content=book.getvalue(), headers=kind)
        # A column of a CSV takes far more memory than its name has bytes.
        wide = (",".join(f"c{number}" for number in range(20_000)) + "\n").encode()
        assert program.post("/api/v1/people", content=wide, headers=CSV).status_code == 503
    assert (found.status_code, "retry-after" in found.headers) == (503, True)
    found = program.post("/api/v1/people", content=book.getvalue(), headers=kind)
    assert found.status_code == 400


def test_a_programme_takes_only_so_many_columns(fresh):
    """Everybody who may plan adds columns, and each makes all plans slower."""
    program = fresh.token("Paul", "plan")
    row = {"id": 1, "state": "motivated"}
    wide = [row | {f"c{number}": 1 for number in range(6000)}]
    found = program.post("/api/v1/states", json=wide)
    assert found.status_code == 400
    assert "and it can have 5,000" in found.json()["detail"]
    assert program.post("/api/v1/states", json=[row | {"c1": 1}]).json() == {"observed": 1}


def test_bombs(served):
    program = served.token("Paul", "plan")
    parquet = {"content-type": "application/vnd.apache.parquet"}
    data = io.BytesIO()
    pl.DataFrame({"id": pl.repeat(7, 6_000_000, eager=True)}).write_parquet(data)
    assert len(data.getvalue()) < 200_000
    found = program.post("/api/v1/people", content=data.getvalue(), headers=parquet)
    assert (found.status_code, "6,000,000 rows" in found.json()["detail"]) == (400, True)
    deep = b"[" * 100_000
    kind = {"content-type": "application/json"}
    assert program.post("/api/v1/people", content=deep, headers=kind).status_code == 400
    assert program.post("/api/v1/plans", content=deep, headers=kind).status_code in (400, 422)


@pytest.mark.parametrize("text", SQL)
def test_sql_in_every_field(served, browsers, text):
    ada, paul = browsers["Ada"], browsers["Paul"]
    served.client().post("/sign-in", data={"name": text, "password": text})
    assert served.client(authorization=f"Bearer {text}").get("/api/v1/me").status_code == 401
    ada.post("/api/v1/users", json={"name": text, "role": "viewer"})
    ada.post("/api/v1/users", json={"name": "Xi", "role": text})
    ada.patch(f"/api/v1/users/{text}", json={"active": False})
    paul.post("/api/v1/tokens", json={"label": text, "scopes": [text]})
    approve = {"round": 1, "attempt": served.desk.head().attempt}
    assert paul.post("/week/approve", data=approve).status_code == 303
    marks = [{"id": text, "action": text, "why": text}, {"id": 1, "action": "call", "why": text}]
    for mark in marks:
        paul.post("/api/v1/marks", json={"round": 1, "marks": [mark]})
    new = people(1, first=500).with_columns(name=pl.lit(text), state=pl.lit("motivated"))
    new = new.rename({"name": text})
    assert paul.post("/api/v1/people", json=new.to_dicts(), params={"why": text}).status_code == 200
    assert paul.get("/api/v1/people/500").json()["details"][text] == text
    assert paul.post("/api/v1/people/leave", json={"ids": [500]}).status_code == 200
    for path in (f"/api/v1/people/{text}", f"/api/v1/plans/{text}", f"/api/v1/jobs/{text}",
                 f"/api/v1/history/{text}", f"/api/v1/deviations?round={text}"):  # fmt: skip
        assert paul.get(path).status_code in (400, 404, 422), path
    assert set(served.desk.roster()["id"]) == set(people()["id"])
    with served.desk.records.reading() as sql:
        assert {"Ada", "Paul"} <= set(accounts.all_users(sql)["name"])
        assert "argon2" in sql.exec_driver_sql(
            "SELECT password FROM users WHERE name = 'Ada'"
        ).scalar_one()  # fmt: skip


def test_script_in_every_name(tmp_path, model):
    """Names, ids, reasons and columns with markup are shown as text."""
    served = Served(tmp_path, model)
    bad = people(4, first=700).with_columns(
        id=pl.concat_str(pl.lit(SCRIPT), pl.col("id").cast(pl.String)),
        name=pl.lit(SCRIPT), worker=pl.lit(SCRIPT), state=pl.lit("persuadable"),
    ).with_columns(pl.lit(SCRIPT).alias(SCRIPT))  # fmt: skip
    with pm.Programme(tmp_path / "text.db", model) as programme:
        programme.join(bad)
        programme.plan(2)
    served.desk.close()
    other = Served.__new__(Served)
    other.clock = served.clock
    other.app = pm_app(str(tmp_path / "text.db"), model, served.clock)
    other.desk = other.app.state.desk
    other.add("Paul", "planner")
    paul = other.client("Paul")
    paul.post("/week/approve", data={"round": 1, "attempt": 1})
    mark = {"id": bad["id"][0], "action": "call", "why": SCRIPT}
    stored = paul.post("/api/v1/marks", json={"round": 1, "marks": [mark]})
    assert stored.json()["stored"] == 1
    for path in [*pages_of(other.app), f"/{SCRIPT}", f"/sign-in?next={SCRIPT}"]:
        assert SCRIPT not in paul.get(path).text, path
    again = other.client().post("/sign-in", data={"name": SCRIPT, "password": SCRIPT})
    assert SCRIPT not in again.text
    assert "&lt;script&gt;" in paul.get("/week").text
    kind = paul.get("/api/v1/people").headers
    assert (kind["content-type"], kind["x-content-type-options"]) == ("application/json", "nosniff")
    other.desk.close()


def pm_app(place, model, clock):
    from prefermab.service import Settings, create_app

    return create_app(Settings(place), clock=clock, model=model)


def test_brute_force(served):
    """A few wrong passwords are answered, then none is looked at; time and other addresses heal."""
    served.add("Tom", "viewer")
    wrong = {"name": "Tom", "password": "wrong wrong wrong"}
    browser = served.client()
    for _ in range(LIMITS["pair"]):
        assert browser.post("/sign-in", data=wrong).status_code == 401
    right = {"name": "Tom", "password": PASSWORD}
    stopped = browser.post("/sign-in", data=right)
    assert (stopped.status_code, "retry-after" in stopped.headers) == (429, True)
    assert served.client().post("/sign-in", data=right).status_code == 429
    served.clock.now += WINDOW + 1
    assert browser.post("/sign-in", data=right).status_code == 303
    told = served.desk.programme().audit()
    failed = told.filter(pl.col("what") == "failed sign-in")
    assert failed.filter(who="Tom").height == LIMITS["pair"]
    assert not told.filter(pl.col("details").str.contains("wrong wrong|long enough")).height


def sign_in(served, name, password=PASSWORD, address="192.0.2.1"):
    """The status of a sign-in from an address."""
    served.clock.now += 0.01
    client = TestClient(served.app, ORIGIN, headers=SAME, client=(address, 50000),
                        raise_server_exceptions=False, follow_redirects=False)  # fmt: skip
    return client.post("/sign-in", data={"name": name, "password": password}).status_code


def test_failed_sign_ins_keep_out_nobody_who_is_known(fresh, monkeypatch):
    """Neither with many names from one address, nor with one name from many addresses."""
    for kind in ("name", "address"):
        monkeypatch.setitem(LIMITS, kind, 8)
    fresh.add("Tom", "viewer")
    assert sign_in(fresh, "Vera") == 303
    failed = [sign_in(fresh, f"invented {k}", "x") for k in range(LIMITS["address"] + 1)]
    assert failed == [401] * LIMITS["address"] + [429]
    assert [sign_in(fresh, name) for name in ("Vera", "Tom")] == [303, 429]
    assert sign_in(fresh, "Vera", "wrong") == 429, "as whoever is not known here"
    assert sign_in(fresh, "Tom", address="192.0.2.2") == 303
    fresh.clock.now += WINDOW + 1
    many = [sign_in(fresh, "Vera", "x", f"10.0.{k}.1") for k in range(LIMITS["name"] + 1)]
    assert many == [401] * LIMITS["name"] + [429]
    assert [sign_in(fresh, "Vera", address=one) for one in ("192.0.2.1", "10.9.9.9")] == [303, 429]
    fresh.clock.now += WINDOW + 1
    near = [sign_in(fresh, "Vera", "x", f"2001:db8::{k}") for k in range(LIMITS["pair"] + 1)]
    assert near == [401] * LIMITS["pair"] + [429], "an IPv6 network is one address"


def test_what_is_stored_without_an_account_is_short_and_little(fresh, monkeypatch):
    monkeypatch.setitem(LIMITS, "all", 10)
    kind = {"content-type": "application/x-www-form-urlencoded"}
    long = [fresh.client().post(path, content=b"name=" + b"x" * size + b"&password=y", headers=kind)
            for path in ("/sign-in", "/welcome/x") for size in (1 << 20, 300)]  # fmt: skip
    assert [one.status_code for one in long] == [413, 422] * 2
    tried = [sign_in(fresh, "x" * 80, "y" * 200, f"10.0.0.{k}") for k in range(12)]
    assert tried == [401] * 10 + [429] * 2
    with fresh.desk.records.reading() as sql:
        stored = sql.execute(sa.text("SELECT who FROM attempts")).scalars().all()
    assert (len(stored), {len(one) for one in stored}) == (40, {64})


def test_a_clock_that_jumped_ahead_locks_nobody_and_gives_no_longer_session(fresh):
    before = fresh.clock.now
    fresh.clock.now += 365 * 86400
    assert [sign_in(fresh, "Vera", "x") for _ in range(6)][-1] == 429
    late = fresh.client("Paul")
    fresh.clock.now = before
    assert sign_in(fresh, "Vera") == 303
    assert late.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize(("named", "address"), [([], "127.0.0.1"), (["127.0.0.1"], "203.0.113.7")])
def test_only_named_proxies_are_believed(tmp_path, model, monkeypatch, named, address):
    served, given = Served(tmp_path, model), {}
    monkeypatch.setattr(uvicorn, "run", lambda *_, **more: given.update(more))
    dispatch(["serve", served.place, *(["--proxy", *named] if named else [])])
    taken = ("proxy_headers", "forwarded_allow_ips")
    config = uvicorn.Config(served.app, **{one: given[one] for one in taken if one in given})
    config.load()
    client = TestClient(config.loaded_app, ORIGIN, headers=SAME, client=("127.0.0.1", 5))
    forged = {"x-forwarded-for": "198.51.100.1, 203.0.113.7"}
    client.post("/sign-in", data={"name": "Vera", "password": "wrong"}, headers=forged)
    failed = served.desk.programme().audit().filter(what="failed sign-in")["details"]
    assert json.loads(failed[0]) == {"address": address}
    with pytest.raises(pm.InputError, match="--proxy must be an IP address or a network"):
        dispatch(["serve", served.place, "--proxy", "*"])
    served.desk.close()


def test_errors_before_signing_in_say_nothing_of_the_inside(fresh):
    hidden = ("hidden", "calls.db", "postgresql", fresh.place.rpartition("#")[2])
    form = {"content-type": "application/x-www-form-urlencoded"}
    strange = fresh.client().post("/sign-in", content=b"name=a%00b&password=x", headers=form)
    assert strange.status_code == 400
    assert "cannot be stored" in strange.text
    paul, told = fresh.client("Paul"), [strange]
    right = {"name": "Vera", "password": PASSWORD}
    other = Database(fresh.place, 1, begin=False)
    with other.writing():
        told += [fresh.client().post("/sign-in", data=right, headers={"accept": kind})
                 for kind in ("text/html", "application/json")]  # fmt: skip
        busy = paul.post("/api/v1/people/leave", json={"ids": [2]})
    other.close()
    assert [one.status_code for one in told] == [400, 503, 503]
    assert told[-1].json()["detail"] == "the service is busy: try again in a moment."
    assert busy.json()["detail"].startswith("the programme is in use by another process")
    assert not [one for one in hidden for answer in (*told, busy) if one in answer.text]
    unknown = fresh.client().get("/api/v1/people", headers={"authorization": "Bearer x\x00"})
    assert unknown.status_code == 401


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_texts_and_numbers_that_cannot_be_stored_are_refused(fresh, text):
    ada, paul = fresh.client("Ada"), fresh.client("Paul")
    kind = {"content-type": "application/json"}
    before = fresh.desk.programme().audit().height

    def send(client, method, path, body):
        return client.request(method, path, content=json.dumps(body), headers=kind).status_code

    large = 2**63
    for client, method, path, body in (
        (ada, "POST", "/api/v1/users", {"name": text, "role": "viewer"}),
        (paul, "POST", "/api/v1/plans", {"budget": 1, "why": text}),
        (paul, "POST", "/api/v1/plans", {"budget": 1, "rules": {"lock_ids": [large]}}),
        (paul, "POST", "/api/v1/plans", {"budget": 1, "rules": {"last_column": "id"}}),
        (paul, "POST", "/api/v1/states", [{"id": 2, "state": text}]),
        (paul, "POST", "/api/v1/marks", {"round": 1, "marks": [{"id": large, "action": "call"}]}),
        (paul, "PUT", "/api/v1/programme/last-round", {"last_round": large}),
        (paul, "POST", "/api/v1/people/leave", {"ids": ["--5"]}),
        (paul, "POST", "/api/v1/audit/verify?head=%00", {}),
        (paul, "POST", "/api/v1/tokens", {"label": text, "scopes": ["read"]}),
    ):  # fmt: skip
        assert send(client, method, path, body) == 400, (path, body)
    assert send(paul, "POST", f"/api/v1/audit/verify?head={'0' * 64}", {}) == 409
    digits = b'{"budget": ' + b"9" * 5000 + b"}"
    assert paul.post("/api/v1/plans", content=digits, headers=kind).status_code == 400
    days = {"name": "Ada", "label": "x", "scope": "read", "days": "9" * 320}
    assert ada.post("/users/tokens", data=days).status_code == 400
    assert paul.post("/sign-out", headers={"origin": "http://["}).status_code == 403
    assert fresh.desk.programme().audit().height == before


def test_a_new_password_and_ending_sessions_end_tokens_too(served):
    served.add("Eve", "planner")
    ada = served.client("Ada")
    for way in ("sessions", "password"):
        browser, token = served.client("Eve"), served.token("Eve", "read")
        assert token.get("/api/v1/plans").status_code == 200
        if way == "sessions":
            assert "End sessions and tokens" in ada.get("/users").text
            page = ada.post("/users/change", data={"name": "Eve", "do": "sessions"}).text
            assert "Ended of Eve: 1 sessions, 1 tokens." in page
        else:
            link = ada.post("/api/v1/users/Eve/link").json()["link"]
            assert "ends your 1 token:" in served.client().get(link).text
            served.client().post(link, data={"password": PASSWORD, "again": PASSWORD})
        assert [one.get("/api/v1/me").status_code for one in (browser, token)] == [401, 401]


STRANGE_NAMES = (
    "\u0410n\u0430", "A\u200bna", "Ana\u202e", "ANA", "\uff21na", "the service",
    "N\u043ebody", "nobody", "The  Service", "\u00ad", "None",
    "Ana\ufe0f", "A\u034fna", "\u3164", "\u2800",
)  # fmt: skip


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_names_that_look_like_another_are_refused(browsers, name):
    found = browsers["Ada"].post("/api/v1/users", json={"name": name, "role": "admin"})
    assert found.status_code == 400, found.text
    assert browsers["Ada"].post("/users", data={"name": name, "role": "admin"}).status_code == 400


def test_links_in_a_model_s_card_lead_nowhere(tmp_path, model):
    folder = tmp_path / "learned"
    model.save(folder)
    card = (
        "[free phones](http://evil.example) <http://evil.example> [x]: //evil.example\n[here](#x)"
    )
    (folder / "README.md").write_text(card)
    served = Served(tmp_path, model)
    served.desk.programme().keep_place(str(folder))
    page = served.client("Vera").get("/models").text
    assert "free phones" in page
    assert re.findall(r'href="([^"]*evil[^"]*)"', page) == []
    assert 'href="#x"' in page
    served.desk.close()


def test_a_token_with_one_right_reads_no_more_than_that(served):
    for right in ("record", "plan"):
        program = served.token("Ada", right)
        for path in pages_of(served.app):
            if path not in ("/sign-in", "/sw.js", "/welcome/2"):
                assert program.get(path).status_code == 403, path
        for path in ("programme", "people", "people/2", "plans/current/list", "tokens", "marks"):
            assert program.get(f"/api/v1/{path}").status_code == 403, path
    reader = served.token("Ada", "read")
    assert reader.delete("/api/v1/tokens/1").status_code == 403
    assert reader.get("/api/v1/programme").status_code == 200


def test_a_change_from_another_scheme_is_from_another_site(tmp_path, model):
    served = Served(tmp_path, model, https=True)
    browser, form = served.client(), {"name": "Vera", "password": PASSWORD}
    del browser.headers["sec-fetch-site"]
    for origin, status in (("http://localhost", 403), ("https://localhost", 303)):
        assert browser.post("/sign-in", data=form, headers={"origin": origin}).status_code == status
    plain = Served(tmp_path / "plain", model).client()
    found = plain.post("/sign-in", data=form, headers={"origin": "https://localhost"})
    assert (found.status_code, "--https" in found.text) == (403, True)
    served.desk.close()


def test_host_header(served):
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "",
                 "evil.example:8321", "localhost:80@evil", "[::1]evil", "127.0.0.1:<script>",
                 "localhost:", "[::1"):  # fmt: skip
        found = served.client(host=host).get("/sign-in")
        assert found.status_code == 421, host
    for host in ("localhost", "127.0.0.1:8321", "[::1]:8321", "LOCALHOST"):
        assert served.client(host=host).get("/sign-in").status_code == 200


@pytest.mark.parametrize(
    "target",
    ["https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example",
     "javascript:alert(1)", "/%0d%0aset-cookie:x", "/\r\nset-cookie: x=1", " //evil.example",
     "/\t/evil.example"],
)  # fmt: skip
def test_open_redirect(served, target):
    form = {"name": "Vera", "password": PASSWORD, "next": target}
    found = served.client().post("/sign-in", data=form)
    assert found.status_code == 303
    assert found.headers["location"] in ("/", "/%0d%0aset-cookie:x")
    assert "x=1" not in found.headers.get("set-cookie", "")
    page = served.client().get("/sign-in", params={"next": target}).text
    assert 'value="/"' in page or 'value="/%0d%0aset-cookie:x"' in page


def test_every_answer_has_the_headers(browsers):
    ada = browsers["Ada"]
    for path in ("/week", "/sign-in", "/static/style.css", "/nothing", "/api/v1/me", "/api/v1/x"):
        found = ada.get(path)
        assert {name: found.headers.get(name) for name in HEADERS} == HEADERS
        stored = "max-age" if path.startswith("/static") else "no-store"
        assert stored in found.headers["cache-control"]
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_no_page_has_inline_scripts_or_styles(served, browsers):
    for path in pages_of(served.app):
        text = browsers["Ada"].get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"<[^>]+\s(on\w+|style)=", text), path
        assert not re.search(r"(src|href|action)=\"(https?:)?//", text), path


def test_errors_never_show_a_traceback(served, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("secret detail")

    program = served.token("Paul", "read")
    monkeypatch.setattr(type(served.desk), "roster", fail)
    found = program.get("/api/v1/people")
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "Traceback" not in found.text


def test_links_work_once_and_end(served, browsers):
    made = browsers["Ada"].post("/api/v1/users", json={"name": "Uma", "role": "viewer"}).json()
    before = served.clock.now
    served.clock.now += accounts.LINK_LASTS + 1
    assert served.client().get(made["link"]).status_code == 400
    served.clock.now = before
    form = {"password": PASSWORD, "again": PASSWORD}
    short = {"password": "short", "again": "short"}
    assert served.client().post(made["link"], data=short).status_code == 400
    assert served.client().post(made["link"], data={**form, "again": "x"}).status_code == 400
    assert served.client().post(made["link"], data=form).status_code == 303
    assert served.client().post(made["link"], data=form).status_code == 400
    assert served.client("Uma", **SAME).get("/week").status_code == 200
