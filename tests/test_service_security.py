"""The attack list: each attack is a test."""

import contextlib
import io
import re
import threading

import polars as pl
import pytest

import damage
import prefermab as pm
from prefermab.service import accounts, several
from prefermab.service.access import EVERYBODY, OWN_PEOPLE, RULES, Guarded
from prefermab.service.access import ROLES as RIGHTS
from prefermab.service.app import ROUTE_MODULES
from prefermab.service.exchange import MEDIA_TYPES, READING_UPLOADS
from prefermab.service.guards import HEADERS
from prefermab.service.signing import LIMITS, WINDOW
from services import BUDGET, PASSWORD, ROLES, SAME, Served, fast_passwords, people

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
    monkeypatch.setattr("prefermab.service.exchange.LONGEST_WAIT", 0.01)
    program = served.token("Paul", "plan")
    book = io.BytesIO()
    pl.DataFrame({"id": [1]}).write_parquet(book)
    kind = {"content-type": "application/vnd.apache.parquet"}
    with contextlib.ExitStack() as readers:
        for _ in range(2):
            assert READING_UPLOADS.acquire(timeout=10)
            readers.callback(READING_UPLOADS.release)
        found = program.post("/api/v1/people", content=book.getvalue(), headers=kind)
    assert (found.status_code, "retry-after" in found.headers) == (503, True)
    found = program.post("/api/v1/people", content=book.getvalue(), headers=kind)
    assert found.status_code == 400


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
    paul.post("/api/v1/marks", json={"round": 1, "marks": [
        {"id": bad["id"][0], "action": "call", "why": SCRIPT}]})  # fmt: skip
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


def test_host_header(served):
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "",
                 "evil.example:8321"):  # fmt: skip
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
