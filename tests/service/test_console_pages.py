"""Pages of the console: import, what if, groups, models, audit, users."""

import io
import re

import polars as pl
import pytest

import prefermab as pm
from prefermab.programme.tables.table import Source, format_number
from prefermab.service.http.rendering import line_chart
from prefermab.service.work.uploads import find_wrong
from prefermab.service.work.worker import work
from services import BUDGET, PASSWORD, Served, fast_passwords

JOIN = (
    "id,state,feature_0,worker\n101,motivated,0.2,Ana\n102,sleepy,0.2,Bea\n3,motivated,0.1,Ana\n"
    "103,persuadable,many,Bea\n104,lost cause,,Ana\n101,motivated,0.3,Ana\n"
)


@pytest.fixture(scope="module")
def model():
    return pm.load("armman")


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    fast_passwords()
    served = Served(tmp_path_factory.mktemp("pages"), model)
    served.desk.programme().plan(BUDGET)
    return served


def preview(browser, data, kind="join", name="new.csv"):
    files = {"file": (name, data if isinstance(data, bytes) else data.encode())}
    return browser.post("/import", data={"kind": kind}, files=files)


def hidden(page, name):
    return only(rf'name="{name}" value="([^"]*)"', page)


def only(pattern, page):
    (found,) = re.findall(pattern, page)
    return found


def test_an_import_names_every_wrong_row_and_writes_nothing_before_it_is_confirmed(served):
    paul, before = served.client("Paul"), served.desk.programme().audit().height
    page = preview(paul, JOIN).text
    wrong = re.findall(r'<tr><td class="number">(\d+)</td><td>(\w+)</td><td[^>]*>(.*?)</td>', page)
    assert [(row, who) for row, who, _ in wrong] == [
        ("3", "102"), ("4", "3"), ("5", "103"), ("7", "101")
    ]  # fmt: skip
    assert "sleepy" in wrong[0][2]
    assert wrong[1][2] == "3 is in the programme already."
    assert "many" in wrong[2][2]
    assert wrong[3][2] == "101 stands in an earlier row too."
    assert served.desk.programme().audit().height == before
    form = {"secret": hidden(page, "secret"), "rows": "2", "why": "new village"}
    assert served.client("Ada").post("/import/confirm", data=form).status_code == 400
    assert paul.post("/import/confirm", data={**form, "rows": "5"}).status_code == 400
    assert "2 people joined; 4 rows were left out." in paul.post("/import/confirm", data=form).text
    assert paul.post("/import/confirm", data=form).status_code == 400
    last = served.desk.programme().audit().tail(1)
    assert last.select("who", "what", "why").row(0) == ("Paul", "join", "new village")
    assert {101, 104} <= set(served.desk.programme().roster()["id"])


def test_states_are_imported_from_excel_and_parquet(served):
    paul = served.client("Paul")
    seen = pl.DataFrame({"id": [1, 2, 999], "state": ["lost cause", "motivated", "motivated"]})
    for name, write in (("seen.xlsx", seen.write_excel), ("seen.parquet", seen.write_parquet)):
        data = io.BytesIO()
        write(data)
        page = preview(paul, data.getvalue(), "states", name).text
        assert "999 is not in the programme." in page
        assert hidden(page, "rows") == "2"
    form = {"secret": hidden(page, "secret"), "rows": "2"}
    assert "2 states were stored" in paul.post("/import/confirm", data=form).text


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("new.csv", "name\nAda\n", "the column &#39;id&#39; is missing"),
        ("new.exe", "id\n1\n", "expected a file whose name ends in"),
        ("new.csv", "", "the file is empty"),
        ("new.parquet", "id\n1\n", "not a Parquet file"),
    ],
)
def test_a_file_that_is_no_table_is_said_in_one_sentence(served, name, data, said):
    answer = preview(served.client("Paul"), data, name=name)
    assert answer.status_code == 400
    assert said in answer.text


def test_wrong_rows_are_found_without_looking_at_every_row():
    asked = []

    def check(frame, where):
        asked.append(frame.height)
        if (frame["id"] % 300 == 7).any():
            raise pm.InputError(f"{where}: wrong.")

    frame = pl.DataFrame({"id": range(1000)})
    assert set(find_wrong(frame, Source("t.csv", 2), check)) == {7, 307, 607, 907}
    assert len(asked) < 100


def test_what_if_shows_what_the_model_says(served, model):
    page = served.client("Vera").get("/what-if").text
    plan = served.desk.programme().planned()
    found = dict(re.findall(r'data-budget="([\d.]+)"[^>]*data-chosen="(\d+)"', page))
    told = model.what_if(plan.inputs, [2.0, 4.0])["chosen"].to_list()
    assert [int(found["2.0"]), int(found["4.0"])] == told
    assert 'id="of-budget">4<' in page
    assert f'id="of-gain">{format_number(plan.facts["gain"])}<' in page


def test_groups_count_what_was_done(served):
    page = served.client("Vera").get("/groups?by=worker").text
    chosen = served.desk.programme().planned().frame.filter(list="chosen")
    for name in ("Ana", "Bea"):
        number = chosen.filter(worker=name).height
        assert re.search(rf'<th scope="row">{name}</th>\s*<td class="number">{number} of', page)
    assert served.client("Vera").get("/groups?by=feature_0").status_code == 400


def test_a_replay_is_bit_for_bit_or_says_what_differs(served, monkeypatch):
    vera = served.client("Vera")
    assert "the same list, bit for bit" in vera.post("/models", data={"round": "1"}).text
    other = served.desk.model.plan

    def tampered(frame, budget, **more):
        return other(frame, budget + 1, **more)

    monkeypatch.setattr(type(served.desk.model), "plan", lambda _, *a, **k: tampered(*a, **k))
    assert "differs from the stored one" in vera.post("/models", data={"round": "1"}).text


def test_a_list_of_many_people_is_made_again_by_a_job(served, monkeypatch):
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    monkeypatch.setattr("prefermab.service.work.jobs.start_worker", lambda _: None)
    vera, desk = served.client("Vera"), served.desk
    place = vera.post("/models", data={"round": "1"}).headers["location"]
    assert "Round 1: waiting; the result appears here." in vera.get(place).text
    assert work(desk.records, desk.settings, served.clock, served.model)
    assert "the same list, bit for bit: 12 people" in vera.get(place).text
    missing = vera.post("/models", data={"round": "77"}).headers["location"]
    assert work(desk.records, desk.settings, served.clock, served.model)
    assert "round 77 is not planned" in vera.get(missing).text
    served.token("Paul", "read", "plan").post("/api/v1/what-if", json={"budgets": [1]})
    other = vera.get("/models?job=3")
    assert (other.status_code, "does not make a list again" in other.text) == (400, True)


def test_the_audit_log_is_filtered_and_verified(served):
    vera = served.client("Vera")
    page = vera.get("/audit?what=plan").text
    assert (
        page.count('role="row"') == 1 + served.desk.programme().audit().filter(what="plan").height
    )
    assert "No changes of this kind" in vera.get("/audit?words=no+such+words").text
    assert "rows fit" in vera.post("/audit").text
    assert "no row has the hash" in vera.post("/audit", data={"head": "ab" * 32}).text


def test_users_are_invited_changed_and_blocked_and_tokens_shown_once(served):
    ada = served.client("Ada")
    page = ada.post("/users", data={"name": "Zoe", "role": "viewer"}).text
    link = only(r"http://localhost(/welcome/[\w-]+)", page)
    assert link not in ada.get("/users").text
    zoe = served.client()
    assert zoe.post(link, data={"password": PASSWORD, "again": PASSWORD}).status_code == 303
    assert zoe.get("/users").status_code == 403
    ada.post("/users/change", data={"name": "Zoe", "do": "role", "role": "planner"})
    assert zoe.get("/week").status_code == 303
    zoe = served.client("Zoe")
    assert (
        "Ended of Zoe: 1 sessions, "
        in ada.post("/users/change", data={"name": "Zoe", "do": "sessions"}).text
    )
    assert zoe.get("/week").status_code == 303
    form = {"name": "Zoe", "label": "nightly", "scope": ["read", "plan"], "days": "30"}
    token = only(r'<code class="wrap">([\w-]+)</code>', ada.post("/users/tokens", data=form).text)
    program = served.client(authorization=f"Bearer {token}")
    assert program.get("/api/v1/plans").status_code == 200
    assert token not in ada.get("/users").text
    refused = ada.post("/users/tokens", data={**form, "scope": ["admin"]})
    assert refused.status_code == 400
    ada.post("/users/change", data={"name": "Zoe", "do": "block"})
    assert program.get("/api/v1/plans").status_code == 401
    assert ada.post("/users/change", data={"name": "Ada", "do": "block"}).status_code == 400
    assert "not valid any more" in ada.post("/users/tokens/drop", data={"number": "1"}).text
    whats = served.desk.programme().audit().filter(who="Ada")["what"].to_list()
    assert {"add user", "change user", "add token", "drop token"} <= set(whats)


def test_pages_before_the_first_plan_say_so(tmp_path, model):
    fast_passwords()
    vera = Served(tmp_path, model).client("Vera")
    for path in ("/what-if", "/groups", "/models"):
        assert "No round is planned yet" in vera.get(path).text


def test_charts_leave_out_what_is_unknown():
    chart = line_chart([1, 2, 3], {"a": [0.1, None, 0.2]}, percent=True, whole=True)
    assert len(chart.dots["a"]) == 2
    assert [tick.text for tick in chart.across] == ["1", "2", "3"]
    assert chart.up[0].text == "0%"
