"""The console's pages of this week, of the record and of people, without a browser."""

import dataclasses
import io
import json

import polars as pl
import pytest

import prefermab as pm
from prefermab.service.pages.people import timeline_chart, timeline_of
from prefermab.service.work.plan_requests import PlanForm, read_pairs
from prefermab.service.work.worker import work
from services import BUDGET, Served, fast_passwords, people

SCRIPT = "<script>alert(1)</script>"
JSON = {"accept": "application/json"}


@pytest.fixture(scope="module")
def model():
    fast_passwords()
    return pm.load("armman")


@pytest.fixture
def served(tmp_path, model):
    found = Served(tmp_path, model)
    found.desk.programme().join(people(24, first=13))
    return found


def planned(served):
    """A planner who has made the list."""
    paul = served.client("Paul")
    form = {"budget": str(BUDGET), "waiting": "3", "cooldown": "1"}
    assert paul.post("/week/plan", data=form).headers["location"] == "/week?said=planned"
    return paul


def approved(served):
    """A planner who has made the list and approved it."""
    paul = planned(served)
    found = paul.post("/week/approve", data={"round": 1, "attempt": 1})
    assert found.headers["location"] == "/week?said=approved"
    return paul


def plan_of(served):
    head = served.desk.head()
    return served.desk.planned(head.round, head.attempt)


def on_list(served, **more):
    return plan_of(served).frame.filter(list="chosen", **more).sort("rank")["id"].to_list()


def mark(client, person, what, **more):
    form = {"id": str(person), "round": "1", "what": what, **more}
    return client.post("/record/mark", data=form, headers=JSON)


def test_a_plan_from_the_form_is_the_plan_of_the_package(served, tmp_path, model):
    assert "no list yet" in served.client("Paul").get("/week").text
    planned(served)
    with pm.Programme(tmp_path / "other.db", model) as programme:
        programme.join(people())
        programme.join(people(24, first=13))
        expected = programme.plan(BUDGET, pm.Rules(cooldown=1), waiting=3)
    assert plan_of(served).frame.equals(expected.frame)
    assert plan_of(served).facts == expected.facts


def test_fields_that_cannot_be_read_are_named(served):
    paul = served.client("Paul")
    for field, value, said in (
        ("budget", "a lot", "budget must be a number"),
        ("min_share", "north", "expected a name and a number"),
        ("cooldown", "-1", "rounds of rest after an action must be"),
    ):
        found = paul.post("/week/plan", data={"budget": "4", field: value})
        assert found.status_code == 400
        assert said in found.text
    assert read_pairs("north of the river 30%\nsouth=0.2", "x") == {
        "north of the river": 0.3, "south": 0.2,
    }  # fmt: skip


def test_a_form_that_is_sent_as_it_is_changes_no_number():
    for budget, part in ((1_234_567.0, 0.1), (2.0**53 - 1, 1 / 3), (0.1 + 0.2, 1.0)):
        rules = pm.Rules(
            worker_column="worker", budgets={"Ana": budget},
            group_column="town", min_share={"north": part},
        )  # fmt: skip
        asked = {"budget": budget, "waiting": 20, "rules": dataclasses.asdict(rules)}
        asked["explore"] = part
        found = PlanForm.from_asked(json.dumps(asked)).asked()
        assert pm.Rules(**found.pop("rules")) == pm.Rules(**asked.pop("rules"))
        assert found == asked
    with pytest.raises(pm.InputError, match="Ana stands there twice"):
        read_pairs("Ana 5, Ana 9", "budgets of workers")


def test_nobody_is_moved_in_place_of_themselves(served):
    paul = planned(served)
    one = on_list(served)[0]
    form = {"id": str(one), "kind": "off", "instead": str(one), "why": "moved"}
    found = paul.post("/week/change", data=form)
    assert found.status_code == 400
    assert "in place of themselves" in found.text
    assert plan_of(served).attempt == 1


def test_a_swap_is_a_new_attempt_with_who_and_why(served):
    paul = planned(served)
    out, into = on_list(served)[0], plan_of(served).waiting["id"][0]
    form = {"id": str(out), "kind": "off", "instead": str(into)}
    assert "say why" in paul.post("/week/change", data=form).text
    assert f'value="{into}"' in paul.get(f"/week/change?id={out}").text
    found = paul.post("/week/change", data={**form, "why": SCRIPT})
    assert found.headers["location"] == "/week?said=changed"
    assert plan_of(served).attempt == 2
    assert out not in on_list(served)
    assert into in on_list(served)
    page = paul.get("/week").text
    assert f"{out} off the list, {into} on the list" in page
    assert "on by hand" in page
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    last = served.desk.programme().audit().row(-1, named=True)
    assert (last["who"], last["what"], last["why"]) == ("Paul", "plan", SCRIPT)
    free = {"id": str(out), "kind": "free", "why": "is back"}
    assert paul.post("/week/change", data=free).status_code == 303
    assert plan_of(served).asked["rules"]["exclude_ids"] == []
    assert plan_of(served).asked["rules"]["lock_ids"] == [into]


def test_a_change_is_put_on_top_of_those_that_others_made_meanwhile(served):
    paul, first, second = planned(served), *on_list(served)[:2]
    for person in (first, second):  # both forms were opened beside the first list
        form = {"id": str(person), "kind": "off", "why": "moved", "round": "1", "attempt": "1"}
        found = paul.post("/week/change", data=form)
        assert found.headers["location"] == "/week?said=changed"
    assert plan_of(served).asked["rules"]["exclude_ids"] == [first, second]
    assert plan_of(served).attempt == 3


def test_who_has_not_seen_the_change_of_somebody_else_is_told(served):
    paul, one = planned(served), on_list(served)[0]
    spare = plan_of(served).waiting["id"].to_list()
    for path in (f"/week/change?id={one}", "/week/plan"):
        page = paul.get(path).text
        assert 'name="round" value="1"' in page
        assert 'name="attempt" value="1"' in page
    seen = {"round": "1", "attempt": "1", "why": "asked for it"}
    off = {**seen, "id": str(one), "kind": "off", "instead": str(spare[0])}
    for _ in range(2):  # the second time as if the first answer had got lost
        assert paul.post("/week/change", data=off).status_code == 303
    budget = {"budget": str(BUDGET), **seen}
    for path, form, said in (
        ("/week/change", {**seen, "id": str(one), "kind": "on"}, f"{one} is off the list by hand"),
        ("/week/change", {**seen, "id": str(spare[0]), "kind": "off"}, "on the list by hand now"),
        ("/week/plan", {**budget, "budget": "3"}, "somebody changed the list meanwhile"),
        ("/week/plan", {**budget, "attempt": "0"}, "somebody made the list meanwhile"),
        ("/week/approve", {"round": "1", "attempt": "1"}, "the list was changed meanwhile"),
        ("/week/change", {**off, "round": "2"}, "round 2 is not the current one"),
    ):
        found = paul.post(path, data=form)
        assert found.status_code == 409, form
        assert said in found.text
        assert "See the list as it is now" in found.text
    too_many = {**seen, "id": str(spare[1]), "kind": "on"}
    for person in on_list(served)[: BUDGET - 1]:
        paul.post("/week/change", data={**seen, "id": str(person), "kind": "on"})
    before = served.desk.head()
    assert paul.post("/week/change", data=too_many).status_code == 400
    assert served.desk.head() == before
    assert one not in on_list(served)
    assert spare[0] in on_list(served)


def test_what_rules_cost_and_what_is_to_be_known_is_said(served):
    paul = planned(served)
    page = paul.get("/week").text
    assert "rest after an action" in page
    assert "One more unit of budget would gain" in page
    assert "missing for everyone here" in page
    served.desk.programme().record()
    again = {"budget": str(BUDGET), "cooldown": "0"}
    paul.post("/week/plan", data=again)
    assert "36 people planned with a state of an earlier round" in paul.get("/week").text
    refused = paul.post("/week/plan", data={**again, "budget": "5"})
    assert "say why the list is made again" in refused.text


def test_lists_are_filtered_and_downloaded_as_far_as_somebody_may_see_them(served):
    paul = planned(served)
    mine, one = on_list(served, worker="Ana"), on_list(served)[0]
    assert paul.get("/week?worker=Ana").text.count("☐") == len(mine)
    assert paul.get(f"/week?find=person+{one}").text.count("☐") >= 1
    assert "Nobody on the list matches" in paul.get("/week?find=nobody").text
    ana = served.client("Ana")
    table = pl.read_csv(io.BytesIO(ana.get("/week/list.csv").content))
    assert set(table["worker"]) == {"Ana"}
    book = paul.get("/week/list.xlsx")
    assert pl.read_excel(book.content, sheet_name="List")["id"].to_list() == on_list(served)
    for path in ("/week/plan", "/week/change?id=1", "/record/close"):
        assert ana.get(path).status_code == 403


def test_nothing_is_recorded_before_the_list_is_approved(served):
    paul, ana = planned(served), served.client("Ana")
    mine = on_list(served, worker="Ana")
    assert "not approved yet" in ana.get("/record").text
    assert "not approved yet" in mark(ana, mine[0], "done").json()["detail"]
    assert ana.post("/week/approve", data={"round": 1, "attempt": 1}).status_code == 403
    stale = paul.post("/week/approve", data={"round": 1, "attempt": 2})
    assert "changed meanwhile" in stale.text
    paul.post("/week/approve", data={"round": 1, "attempt": 1})
    assert "approved by Paul" in paul.get("/week").text
    assert mark(ana, mine[0], "done").json()["mark"]["what"] == "done"


def test_a_changed_list_is_approved_again_before_anything_is_recorded_by_it(served):
    paul, ana = approved(served), served.client("Ana")
    gone, other, third = on_list(served)[:3]
    assert mark(paul, other, "done").status_code == 200
    paul.post("/week/change", data={"id": str(gone), "kind": "off", "why": "has died"})
    assert "not approved yet" in ana.get("/record").text
    assert "not approved yet" in mark(paul, other, "done").json()["detail"]
    assert "not approved yet" in paul.get("/record/close").text
    close = {"round": "1", "rest": "planned"}
    assert "not approved yet" in paul.post("/record/close", data=close).text
    assert paul.post("/record/mark", data={"id": str(other), "round": "1", "what": "done",
                                           "attempt": "2"}).status_code == 400  # fmt: skip
    assert served.desk.head().round == 1
    # A phone that was offline still shows the first list.
    old = {"attempt": "1", "at": str(served.clock.now - 60)}
    assert "after the list was changed" in mark(paul, gone, "not reached", **old).json()["late"]
    assert mark(paul, third, "done", **old).json()["mark"] is None
    assert mark(paul, other, "done", at=str(served.clock.now)).json() == {
        "mark": None, "late": None,
    }, "the same as the tick that counts already"  # fmt: skip
    assert "cannot be taken back" in mark(paul, other, "open", **old).json()["detail"]
    assert "2 ticks came after" in paul.get("/week").text
    page = paul.get("/record/late").text
    assert "call, not reached" in page
    assert "Let them count" in page
    take = {"round": "1", "ids": [str(gone)], "accept": "yes", "why": "asked her"}
    assert "not approved yet" in paul.post("/record/late", data=take).text
    paul.post("/week/approve", data={"round": "1", "attempt": "2"})
    assert paul.post("/record/late", data=take).headers["location"].endswith("said=counted")
    # What a list says about a person is read from the list by which the tick was made.
    assert mark(paul, third, "done", attempt="1").json()["mark"]["action"] == "call"
    assert "No tick waits" in paul.get("/record/late").text, "a later tick of the same user counts"
    paul.post("/record/close", data={**close, "over_budget": "yes"})
    done = dict(served.desk.programme().history().actions.select("id", "reached").rows())
    assert done[gone] is False
    assert {other, third} < set(done)


def test_ticks_are_kept_once_and_can_be_taken_back(served):
    approved(served)
    ana, mine = served.client("Ana"), on_list(served, worker="Ana")
    theirs = on_list(served, worker="Bea")[0]
    early = {"at": str(served.clock.now - 60)}
    assert mark(ana, mine[0], "not reached", **early).json()["mark"]["what"] == "not reached"
    rows = served.desk.programme().audit().height
    assert mark(ana, mine[0], "not reached", **early).json()["mark"]["what"] == "not reached"
    assert served.desk.programme().audit().height == rows
    assert "say what, and why" in mark(ana, mine[1], "other", action="none").json()["detail"]
    other = {"action": "none", "why": SCRIPT}
    assert mark(ana, mine[1], "other", **other).json()["mark"]["action"] == "none"
    page = ana.get("/record").text
    assert f"2 of {len(mine)}" in page
    assert SCRIPT not in page
    assert mark(ana, mine[1], "open").json() == {"mark": None}
    assert "not among your people" in mark(ana, theirs, "done").json()["detail"]
    assert mark(served.client("Vera"), mine[0], "done").status_code == 403
    form = {"id": str(mine[1]), "round": "1", "what": "done"}
    assert ana.post("/record/mark", data=form).headers["location"] == f"/record#p-{mine[1]}"


def test_somebody_elses_tick_is_shown_before_it_is_replaced(served):
    paul = approved(served)
    ana, one = served.client("Ana"), on_list(served, worker="Ana")[0]
    mark(ana, one, "done")
    served.clock.now += 60
    found = mark(paul, one, "not reached")
    assert found.status_code == 409
    theirs = found.json()["theirs"]
    assert (theirs["who"], theirs["what"]) == ("Ana", "done")
    assert mark(paul, one, "done").status_code == 200, "the same is no conflict"
    form = {"id": str(one), "round": "1", "what": "not reached"}
    page = paul.post("/record/mark", data=form)
    assert page.status_code == 409
    assert "Keep theirs" in page.text
    assert mark(paul, one, "not reached", seen=str(theirs["at"])).json()["mark"]["who"] == "Paul"
    late = mark(paul, one, "done", at=str(served.clock.now - 30))
    assert late.status_code == 409, "an older tick of one's own does not replace a later one"


def test_closing_a_round_records_ticks_and_why(served):
    paul = approved(served)
    chosen, spare = on_list(served), plan_of(served).waiting["id"][0]
    mark(paul, chosen[0], "done")
    mark(paul, chosen[1], "not reached")
    mark(paul, chosen[2], "other", action="none", why="in hospital")
    page = paul.get("/record/close").text
    assert "in hospital" in page
    assert "1 person without a tick" in paul.post("/record/close", data={"round": 1}).text
    mark(paul, spare, "other", action="call", why="asked for it")
    found = paul.post("/record/close", data={"round": 1, "rest": "planned"})
    assert found.headers["location"] == "/week?said=closed"
    history = served.desk.programme().history()
    done = {row["id"]: row["reached"] for row in history.actions.iter_rows(named=True)}
    assert done == {chosen[0]: True, chosen[1]: False, chosen[3]: True, spare: True}
    whys = served.desk.programme().deviations(1)
    assert dict(whys.select("id", "why").rows()) == {
        chosen[2]: "in hospital", spare: "asked for it",
    }  # fmt: skip
    assert mark(paul, chosen[0], "done").json() == {"mark": None, "late": None}, "as recorded"


def test_late_ticks_wait_for_a_planner_who_accepts_or_leaves_them(served):
    paul, ana = approved(served), served.client("Ana")
    mine = on_list(served, worker="Ana")
    paul.post("/record/close", data={"round": 1, "rest": "planned"})
    for person, what, why in ((mine[0], "other", SCRIPT), (mine[1], "not reached", "")):
        early = {"at": str(served.clock.now - 60), "why": why, "action": "none"}
        for _ in range(2):  # the second time as if the first answer had got lost
            assert "a planner decides" in mark(ana, person, what, **early).json()["late"]
    assert "2 of your ticks" in ana.get("/record").text
    assert ana.get("/record/late").status_code == 403
    assert "2 ticks came after their round" in paul.get("/week").text
    page = paul.get("/record/late").text
    assert "call, not reached" in page
    assert SCRIPT not in page
    form = {"round": "1", "ids": [str(mine[0])], "accept": "yes"}
    assert "say why" in paul.post("/record/late", data=form).text
    found = paul.post("/record/late", data={**form, "why": "asked her"})
    assert found.headers["location"] == "/record/late?said=corrected"
    leave = {"round": "1", "ids": [str(mine[1])], "accept": "no", "why": "asked her"}
    assert paul.post("/record/late", data=leave).headers["location"].endswith("said=left")
    done = served.desk.programme().history().actions
    assert mine[0] not in done["id"]
    assert done["reached"].all()
    assert "No tick waits" in paul.get("/record/late").text
    told = served.desk.programme().audit().tail(3)
    assert told["what"].to_list() == ["correct", "accept late marks", "dismiss late marks"]


def test_a_persons_page_tells_their_time_in_the_programme(served):
    paul = approved(served)
    one = on_list(served, worker="Ana")[0]
    mark(paul, one, "not reached")
    paul.post("/record/close", data={"round": 1, "rest": "planned"})
    programme = served.desk.programme()
    programme.observe(pl.DataFrame({"id": [one], "state": ["motivated"], "name": [SCRIPT]}))
    programme.leave(one)
    programme.plan(BUDGET)
    programme.record()
    programme.join(people(1, one))
    rounds = timeline_of(served.desk, one)
    assert [(r.number, r.inside, r.events, r.state) for r in rounds] == [
        (1, True, ["joined"], people(1, one)["state"][0]),
        (2, False, ["left"], "motivated"),
        (3, True, ["joined"], people(1, one)["state"][0]),
    ]
    assert (rounds[0].planned, rounds[0].action, rounds[0].reached) == ("call", "call", False)
    assert "moved up" in str(rounds[0].reason)
    page = served.client("Ana").get(f"/people/person?id={one}").text
    assert "took no part" in page
    assert page.count('class="dot"') == 3
    programme.observe(pl.DataFrame({"id": [one], "state": ["motivated"], "name": [SCRIPT]}))
    for path in (f"/people/person?id={one}", "/people", "/week?find=script"):
        assert SCRIPT not in paul.get(path).text
    other = people().filter(worker="Bea")["id"][0]
    assert served.client("Ana").get(f"/people/person?id={other}").status_code == 403
    assert served.client("Ana").get("/people").text.count("person?id=") == 18
    assert "there is no 999" in paul.get("/people/person?id=999").text


def test_beliefs_stand_where_no_state_was_seen(tmp_path):
    unseen = pm.load("armman-unseen")
    served, tree = Served(tmp_path, unseen), unseen.sightings
    assert tree is not None
    programme = served.desk.programme()
    for _ in range(2):
        programme.plan(BUDGET)
        programme.record()
    rounds = timeline_of(served.desk, 1)
    assert rounds[0].since == 0
    assert rounds[2].since == 2
    beliefs = [one.belief or [] for one in rounds]
    assert [sum(one) for one in beliefs] == pytest.approx([1, 1, 1], abs=1e-5)
    assert beliefs[0][tree.states.index(str(rounds[0].state))] == pytest.approx(1)
    assert "not seen for 2 rounds" in str(rounds[2].believed)
    assert len(timeline_chart(rounds, unseen).cells) == 2 * len(tree.states)


def test_the_list_of_a_large_programme_is_made_by_a_job(served, model, monkeypatch):
    monkeypatch.setattr("prefermab.service.work.desk.MOST_PLANNED_AT_ONCE", 5)
    monkeypatch.setattr("prefermab.service.work.jobs.start_worker", lambda _: None)
    paul = served.client("Paul")
    place = paul.post("/week/plan", data={"budget": str(BUDGET)}).headers["location"]
    assert "is being made" in paul.get(place).text
    assert work(served.desk.records, served.desk.settings, served.clock, model)
    assert paul.get(place).headers["location"] == "/week?said=planned"
    one = on_list(served)[0]
    swap = {"id": str(one), "kind": "off", "why": "moved"}
    place = paul.post("/week/change", data=swap).headers["location"]
    paul.post(f"{place}/cancel")
    assert "was not made" in paul.get(place).text
    assert on_list(served)[0] == one
