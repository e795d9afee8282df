"""This round's list: matching of columns, choice, rules, reasons, files, and bad tables."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prefermab as pm
from commands import run
from mothers import people
from prefermab.arms.amounts import fits
from prefermab.programme.planning.constrained import Selection, choose_under_rules
from prefermab.programme.planning.plan import what_if
from prefermab.programme.planning.rules import SharedLimits
from prefermab.programme.planning.rules.limits import Limits
from prefermab.programme.planning.scoring import gains_at
from prefermab.programme.planning.summary import gain_bound
from prefermab.programme.tables.table import read_table, write_table

MODEL = pm.load("armman")


def numbers(frame: pl.DataFrame) -> list[int]:
    return [MODEL.state_names.index(state) for state in frame["state"]]


def test_a_plan_chooses_what_act_chooses():
    table = people()
    seen = table.select(MODEL.feature_names).to_numpy()
    for budget in (0, 1, 7, 1000):
        acted = MODEL.act(numbers(table), seen, budget=budget) > 0
        planned = MODEL.plan(table, budget=budget)
        assert ((planned.frame["action"] == "call").to_numpy() == acted).all()
        assert planned.summary.spent == acted.sum() <= budget


def test_order_of_columns_number_of_states_and_library_do_not_matter():
    table = people()
    plain = MODEL.plan(table, budget=7).frame
    turned = table.select(reversed(table.columns))
    numbered = table.with_columns(pl.Series("state", numbers(table)))
    as_pandas = pd.DataFrame(table.to_dict(as_series=False))
    for other in (turned, numbered, as_pandas):
        chosen = MODEL.plan(other, budget=7).frame
        assert chosen["action"].to_list() == plain["action"].to_list()
        assert chosen["price"].to_list() == plain["price"].to_list()


def test_other_columns_are_carried_and_taken_names_are_kept_apart():
    table = people(5).with_columns(pl.lit("x").alias("reason"), pl.lit(3).alias("phone"))
    made = MODEL.plan(table, budget=1).frame
    assert made["phone"].to_list() == [3] * 5
    assert made["reason_given"].to_list() == ["x"] * 5


def test_ranks_prices_and_the_waiting_list_agree():
    made = MODEL.plan(people(), budget=7, waiting=3)
    ranked = made.frame.sort("rank")
    assert ranked["rank"].to_list() == list(range(1, 31))
    assert (ranked["list"][:7] == "chosen").all()
    prices = ranked["price"].to_numpy()
    assert (np.diff(prices[:7]) <= 1e-9).all()
    assert (np.diff(prices[7:]) <= 1e-9).all()
    # Above the going price everyone is chosen, and below it nobody, but for the last halving.
    assert prices[6] >= made.summary.price * 0.9
    assert prices[7] <= made.summary.price * 1.1
    assert made.waiting["rank"].to_list() == [8, 9, 10]


def test_a_price_of_ones_own_is_where_choosing_ends():
    table = people(6)
    made = MODEL.plan(table, budget=2).frame
    seen = table.select(MODEL.feature_names).to_numpy()
    for row, (state, price) in enumerate(zip(numbers(table), made["price"], strict=True)):
        for factor, wanted in ((0.97, True), (1.03, False)):
            if price < 0.02:
                continue
            at = np.array([price * factor], np.float32)
            gains = gains_at(MODEL, np.array([state]), seen[row : row + 1], at)[0]
            assert (float(gains[1]) - price * factor > 0) == wanted


def test_reasons_speak_of_state_and_features():
    made = MODEL.plan(people(), budget=7).frame
    chosen = made.filter(pl.col("list") == "chosen")
    assert chosen["reason"].str.contains("moved up by state persuadable").mean() > 0.5
    assert not made["reason"].str.contains("unknown").any()


def test_unknown_features_and_categories_are_allowed_for_and_counted(small_model):
    table = pl.DataFrame(
        {
            "id": [1, 2, 3],
            "state": ["bad", "good", "bad"],
            "age": [30.0, None, 20.0],
            "region": ["north", "south", "atlantis"],
        }
    )
    made = small_model.plan(table, budget=1)
    assert made.summary.unknown == {"age": 1, "region": 1}
    assert made.summary.incomplete == 2
    assert made.summary.spent == 1
    without = small_model.plan(table.drop("age"), budget=1)
    assert without.summary.unknown == {"age": 3, "region": 1}


@pytest.fixture(scope="module")
def small_model() -> pm.Model:
    """A number and a category as features; acting helps whoever is in the north."""
    helps = np.array([[[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.1, 0.9]]]])
    helpless = np.array([[[[0.9, 0.1], [0.8, 0.2]], [[0.3, 0.7], [0.3, 0.7]]]])
    domain = pm.domains.Tabular(
        np.concatenate([helps, helpless]),
        rewards=[0, 1],
        costs=[0, 1],
        features=[[30.0, 1, 0], [20.0, 0, 1]],
        state_names=("bad", "good"),
        action_names=("none", "visit"),
        feature_names=("age", "region=north", "region=south"),
    )
    return pm.pretrain(domain, n_arms=4, budget=1, steps=300)


def test_a_category_decides(small_model):
    table = pl.DataFrame(
        {"id": range(4), "state": ["bad"] * 4, "region": ["south", "north", "south", "south"]}
    )
    made = small_model.plan(table, budget=1)
    assert made.frame["action"].to_list() == ["none", "visit", "none", "none"]
    assert "region north" in made.frame["reason"][1]


def test_several_actions_and_the_recipe_of_the_paper():
    sis = pm.load("sis")
    table = pl.DataFrame({"id": range(6), "state": [1, 10, 50, 100, 149, 150], "feature_0": 0.1})
    made = sis.plan(table, budget=5)
    assert 0 < made.summary.spent <= 5
    assert set(made.frame["action"]) <= set(sis.action_names)
    paper = pm.load("armman-paper").plan(people(), budget=7)
    assert paper.summary.spent == 7
    assert paper.summary.gain is None
    assert paper.frame["price"].null_count() == 30


def test_exclusion_cooldown_locks_and_opting_out():
    table = people().with_columns(
        pl.Series("stop", ["yes"] + ["no"] * 29),
        pl.Series("rounds_since_action", [None, 1, 2, 3] + [None] * 26),
        pl.Series("opt_in", [True] * 28 + [False] * 2),
    )
    rules = pm.Rules(exclude_column="stop", exclude_ids=("p5",), cooldown=2, lock_ids=("p7", "p9"))
    made = MODEL.plan(table, budget=28, rules=rules)
    called = dict(zip(made.frame["id"], made.frame["action"] == "call", strict=True))
    assert not any(called[f"p{i}"] for i in (0, 1, 2, 5, 28, 29))
    assert called["p7"]
    assert called["p9"]
    told = dict(zip(made.frame["id"], made.frame["reason"], strict=True))
    assert (told["p0"], told["p1"], told["p28"]) == ("excluded", "in cooldown", "opted out")
    assert told["p7"].startswith("locked in")
    counts = made.summary
    assert (counts.excluded, counts.resting, counts.opted_out, counts.locked) == (2, 2, 2, 2)
    assert set(counts.rules) == {"exclude", "lock", "cooldown"}
    assert (counts.rules["exclude"] or 0.0) >= 0


@pytest.mark.parametrize(
    ("rules", "budget", "message"),
    [
        ({"lock_ids": ("p1", "p2")}, 1, "locked in cost 2, more than the budget of 1"),
        ({"lock_ids": ("p1",), "exclude_ids": ("p1",)}, 5, r"row 2 \(id p1\) is locked in but is"),
        ({"exclude_ids": ("nobody",)}, 5, "nobody has the id 'nobody'"),
        ({"exclude_column": "regio"}, 5, "the column 'regio' is missing"),
        ({"exclude_column": "region"}, 5, "'region' must hold true or false, but row 1"),
        ({"lock_column": "region"}, 5, "must hold true, false or an action"),
        ({"cooldown": 1}, 5, "'rounds_since_action' is missing"),
        ({"group_column": "region", "min_share": {"nort": 0.5}}, 5, "did you mean 'north'"),
        ({"group_column": "id", "min_share": {"p1": 0.5}}, 6, "'p1' must get at least 50% of 6"),
        ({"group_column": "region", "max_share": {"north": 0.4, "south": 0.5}}, 5, "add up to 90%"),
        ({"worker_column": "nurse", "budgets": {"Ana": 0}, "lock_ids": ("p0", "p1", "p2", "p3")}, 9,
         "locked in with 'Ana' cost"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_kept_are_refused(rules, budget, message):
    with pytest.raises(pm.InputError, match=message):
        MODEL.plan(people(), budget=budget, rules=pm.Rules(**rules))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_share": {"a": 0.5}}, "need `group_column`"),
        ({"budgets": {"a": 1}}, "need `worker_column`"),
        ({"group_column": "g", "min_share": {"a": 0.7, "b": 0.7}}, "add up to 140%"),
        (
            {"group_column": "g", "min_share": {"a": 0.7}, "max_share": {"a": 0.2}},
            "no plan can do both",
        ),
        ({"cooldown": -1}, "cooldown must be"),
        ({"group_column": "g", "min_share": {"a": 1.5}}, "between 0 and 1"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(rules, message):
    with pytest.raises(pm.InputError, match=message):
        pm.Rules(**rules)


def limits_of(group, min_share, max_share, worker, budgets, may) -> Limits:
    groups, workers = tuple("abc"[: len(min_share)]), tuple("xyz"[: len(budgets)])
    shared = (
        SharedLimits.of(np.array(group), groups, np.array(min_share), np.array(max_share)),
        SharedLimits.of(np.array(worker), workers, budget=np.array(budgets)),
    )
    return Limits(np.where(may, 0, 2), np.zeros(len(group), int), shared)


def select(gains, costs, budget, limits: Limits) -> np.ndarray:
    nobody = np.zeros(len(gains), int)
    return choose_under_rules(Selection(gains, costs, budget, limits, nobody, per_cost=True))


def keeps(actions, costs, budget, limits: Limits) -> bool:
    cost = costs[np.arange(len(actions)), actions]
    acted = actions > 0
    total = acted.sum()
    fine = fits(cost, budget) and not (acted & ~limits.may).any()
    for shared in limits.shared:
        for place in range(len(shared.names)):
            room, members = shared.budget[place], shared.label == place
            here, least, most = (acted & members).sum(), shared.least[place], shared.largest[place]
            fine &= least * total - 1e-6 <= here <= min(most * total + 1e-6, shared.people[place])
            fine &= not np.isfinite(room) or fits(cost[members], room)
    return bool(fine)


def may_be_refused(costs, budget, limits: Limits) -> bool:
    """Of all plans: is some group too small, or its workers too poor, for its least share of as
    many people as the budgets and the largest shares allow? Or do those shares allow nobody?"""
    size, n_actions = costs.shape
    groups, workers = limits.shared
    free = SharedLimits.of(groups.label, groups.names)
    no_shares = dataclasses.replace(limits, shared=(free, workers))
    largest = dataclasses.replace(free, largest=groups.largest)
    no_least = dataclasses.replace(limits, shared=(largest, workers))
    plans = list(map(np.array, itertools.product(range(n_actions), repeat=size)))
    most = max((plan > 0).sum() for plan in plans if keeps(plan, costs, budget, no_least))
    for group, least in enumerate(groups.least):
        alone = [plan for plan in plans if not plan[groups.label != group].any()]
        reach = max((p > 0).sum() for p in alone if keeps(p, costs, 1e9, no_shares))
        if reach < np.ceil(least * most - 1e-9):
            return True
    return bool((groups.label >= 0).all() and groups.largest.sum() < 1)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_rule_holds_on_random_tables(data):
    size = data.draw(st.integers(1, 6))
    n_actions = data.draw(st.integers(2, 3))
    ints = lambda low, high: st.lists(  # noqa: E731
        st.integers(low, high), min_size=size, max_size=size
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    gains = np.concatenate([np.zeros((size, 1)), rng.random((size, n_actions - 1))], axis=1)
    costs = np.concatenate([np.zeros((size, 1)), rng.integers(1, 4, (size, n_actions - 1))], axis=1)
    shares = st.sampled_from([0.0, 0.2, 0.34, 0.5])
    limits = limits_of(
        data.draw(ints(-1, 1)),
        [data.draw(shares), data.draw(shares)],
        [data.draw(st.sampled_from([0.5, 0.6, 0.8, 1.0])) for _ in range(2)],
        data.draw(ints(-1, 1)),
        [data.draw(st.sampled_from([0.0, 2.0, 5.0, np.inf])) for _ in range(2)],
        np.array(data.draw(ints(0, 1)), bool),
    )
    budget = float(data.draw(st.integers(0, 10)))
    try:
        actions = select(gains, costs, budget, limits)
    except pm.InputError:
        assert may_be_refused(costs, budget, limits)
        return
    assert keeps(actions, costs, budget, limits)
    bound = gain_bound(gains, costs, budget, limits, np.zeros(size, int), 0.5)
    assert gains[np.arange(size), actions].sum() <= bound + 1e-6


def test_a_least_share_that_the_budget_does_not_reach_makes_a_smaller_plan():
    """Ten people of the south for 1 each, or one of the north for 6 with one of the south."""
    gains = np.tile([0.0, 1.0], (15, 1))
    costs = np.array([[0.0, 6.0]] * 5 + [[0.0, 1.0]] * 10)
    group = [0] * 5 + [1] * 10
    limits = limits_of(group, [0.5, 0.0], [1.0, 1.0], [-1] * 15, [], np.ones(15, bool))
    actions = select(gains, costs, 10.0, limits)
    assert (actions[:5].sum(), actions[5:].sum()) == (1, 1)


def test_the_choice_under_shares_is_the_best_there_is():
    """One unit each: of all choices that keep the shares and act on as many, none gains more."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        size = 9
        gains = np.stack([np.zeros(size), rng.random(size)], axis=1)
        costs = np.tile([0.0, 1.0], (size, 1))
        group = rng.integers(0, 2, size)
        limits = limits_of(group, [0.5, 0.0], [1.0, 1.0], [-1] * size, [], np.ones(size, bool))
        if (group == 0).sum() < 2:
            continue
        actions = choose_under_rules(
            Selection(gains, costs, 4.0, limits, np.zeros(size, int), per_cost=True)
        )
        best = max(
            gains[list(ones), 1].sum()
            for ones in itertools.combinations(range(size), int(actions.sum()))
            if (group[list(ones)] == 0).sum() * 2 >= actions.sum()
        )
        assert actions.sum() == 4
        assert gains[actions > 0, 1].sum() == pytest.approx(best)
        bound = gain_bound(gains, costs, 4.0, limits, np.zeros(size, int), 0.5)
        assert best - 1e-9 <= bound <= best + gains.max()


def test_a_dear_action_that_keeps_others_out_is_given_up():
    """By gain per cost the visit of the first comes before the calls of the others, or nearly: one
    visit (7, then 6.4) against five calls (6.5) for the same budget."""
    gains = np.array([[0.0, 1.0, 7.0]] + [[0.0, 1.3, 1.3]] * 5)
    costs = np.tile([0.0, 1.0, 5.0], (6, 1))
    limits = limits_of([0] * 6, [0.0], [1.0], [0] * 6, [5.0], np.ones(6, bool))
    actions = choose_under_rules(
        Selection(gains, costs, 5.0, limits, np.zeros(6, int), per_cost=True)
    )
    assert actions.tolist() == [2, 0, 0, 0, 0, 0]
    gains[0, 2] = 6.4
    actions = choose_under_rules(
        Selection(gains, costs, 5.0, limits, np.zeros(6, int), per_cost=True)
    )
    assert actions.tolist() == [0, 1, 1, 1, 1, 1]


def test_one_id_is_not_read_letter_by_letter():
    assert pm.Rules(exclude_ids="12").exclude_ids == ("12",)
    assert pm.Rules(lock_ids=[1, 2]).lock_ids == (1, 2)


def test_more_budget_never_gains_less():
    found = what_if(MODEL, people(200), list(range(0, 201, 20)))
    gains = found["gain"].to_numpy()
    assert (np.diff(gains) >= -1e-4).all()
    assert gains[-1] > gains[1] > gains[0] == 0


def test_the_bound_under_the_budget_alone_is_that_of_its_best_price():
    gains = np.array([[0, 3.0], [0, 2.0], [0, 1.0]])
    costs = np.tile([0.0, 1.0], (3, 1))
    limits = limits_of([-1] * 3, [], [], [-1] * 3, [], np.ones(3, bool))
    # (3 - 1.5) + (2 - 1.5) + 0 at the price 1.5, and twice that for the budget of 2.
    assert gain_bound(gains, costs, 2.0, limits, np.zeros(3, int), 1.5) == pytest.approx(5.0)
    # One is locked in and gains 1; at the price 2 the budget of 1 that is left buys 3.
    locked = np.array([0, 0, 1])
    assert gain_bound(gains, costs, 2.0, limits, locked, 1.5) == pytest.approx(1 + 3)


def test_what_a_rule_costs_is_what_is_gained_without_it():
    table = people()
    rules = pm.Rules(
        group_column="region", min_share={"north": 0.9}, worker_column="nurse", budgets={"Ana": 3}
    )
    made = MODEL.plan(table, budget=7, rules=rules)
    chosen = made.frame.filter(pl.col("list") == "chosen")
    assert (chosen["region"] == "north").mean() >= 0.9
    assert (chosen["nurse"] == "Ana").sum() <= 3
    free = MODEL.plan(table, 7, rules=dataclasses.replace(rules, min_share={}))
    assert made.summary.rules["min_share"] == pytest.approx(free.summary.gain - made.summary.gain)


def test_other_budgets():
    found = what_if(MODEL, people(), [0, 5, 10, 100])
    assert found["spent"].to_list()[:3] == [0, 5, 10]
    assert (found["gain"].diff().drop_nulls() >= 0).all()
    assert (found["price"].diff().drop_nulls() <= 0).all()
    with pytest.raises(pm.InputError, match="at least one budget"):
        what_if(MODEL, people(), [])


def test_edges_one_person_everyone_out_and_more_budget_than_needed():
    one = MODEL.plan(people(1), budget=1000)
    assert one.summary.left >= 999
    assert one.summary.one_more == 0
    out = MODEL.plan(people(4).with_columns(opt_in=pl.lit("no")), budget=3)
    assert out.summary.spent == 0
    assert out.frame["rank"].null_count() == 4
    assert out.frame["reason"].to_list() == ["opted out"] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.head(0), "there are no rows"),
        (lambda t: t.drop("id"), "the column 'id' is missing"),
        (lambda t: t.drop("state"), "the column 'state' is missing"),
        (lambda t: t.drop(MODEL.feature_names), "none of the model's features"),
        (lambda t: pl.concat([t, t.slice(1, 1)]), "the id p1 is in row 2 and again in row 5"),
        (lambda t: t.with_columns(id=pl.lit(None)), "row 1 has no id"),
        (
            lambda t: t.with_columns(state=pl.lit("happy")),
            "id p0, has the state 'happy'; expected",
        ),
        (lambda t: t.with_columns(state=pl.lit(7)), "row 1, id p0, has the state '7'"),
        (lambda t: t.with_columns(state=pl.lit(0.5)), "row 1, id p0, has the state '0.5'"),
        (lambda t: t.with_columns(state=pl.lit(None)), "row 1 has no state"),
        (lambda t: t.with_columns(feature_0=pl.lit("tall")), "must hold numbers, but row 1 holds"),
        (lambda t: t.with_columns(feature_0=pl.lit(np.inf)), "must hold finite numbers"),
        (lambda t: t.with_columns(opt_in=pl.lit("maybe")), "'opt_in' must hold true or false"),
        (lambda t: t.with_columns(cost_call=pl.lit(-1)), "costs of at least 0, but row 1"),
    ],
)
def test_bad_tables_are_refused_with_row_and_column(change, message):
    with pytest.raises(pm.InputError, match=message):
        MODEL.plan(change(people(4)), budget=2)


def test_somebody_who_is_out_needs_no_state():
    """A gap makes a column of whole numbers one of floating-point ones."""
    table = people(4).with_columns(
        pl.Series("state", [1.0, 0.0, None, 2.0]), pl.Series("opt_in", [1, 1, 0, 1])
    )
    assert MODEL.plan(table, budget=1).summary.opted_out == 1


def test_bad_budgets_and_frames_are_refused():
    for budget in (-1, float("nan")):
        with pytest.raises(pm.InputError, match="budget must be"):
            MODEL.plan(people(4), budget=budget)
    with pytest.raises(pm.InputError, match="must be a polars or pandas frame"):
        MODEL.plan([1, 2], budget=1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"id,state\n", "there are no rows"),
        ("a.csv", b"id,state\n1,2,3,4\n", "row 2 has 4 fields"),
        ("a.parquet", b"no parquet", "not a Parquet file"),
        ("a.xlsx", b"PK", "not an Excel workbook"),
        ("a.doc", b"PK", "expected a file that ends in"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pm.InputError, match=message) as error:
        MODEL.plan(read_table(tmp_path / name), budget=1)
    assert "\n" not in str(error.value)


def test_ids_that_begin_with_zeros_keep_them(tmp_path):
    (tmp_path / "a.csv").write_text("ID,state\n007,1\n010,2\n")
    assert read_table(tmp_path / "a.csv")["ID"].to_list() == ["007", "010"]
    (tmp_path / "a.csv").write_text("id,state\n0,1\n70,2\n")
    assert read_table(tmp_path / "a.csv")["id"].to_list() == [0, 70]


def test_files_that_are_not_there_and_folders_are_refused(tmp_path):
    with pytest.raises(pm.InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(pm.InputError, match="it is a folder"):
        read_table(tmp_path / "folder.csv")


def test_the_command_writes_the_same_file_twice(tmp_path):
    write_table(people(), tmp_path / "people.csv")
    told = [
        run("plan", "armman", "--arms", "people.csv", "--budget", 7, "--out", name, "--group",
            "region", "--min-share", "north=0.5", folder=tmp_path)
        for name in ("one.csv", "two.csv")
    ]  # fmt: skip
    assert [done.returncode for done in told] == [0, 0]
    assert "7 of 30 people" in told[0].stdout
    assert told[0].stderr == "prefermab: columns not used: nurse.\n"
    assert pl.read_csv(tmp_path / "one.csv")["rank"].to_list() == list(range(1, 31))
    one, two = ((tmp_path / f"{n}.csv").read_bytes() for n in ("one", "two"))
    assert one == two
    asked = run(
        "what-if", "armman", "--arms", "people.csv", "--budgets", "2:6:2", "--json", folder=tmp_path
    )
    assert [row["budget"] for row in pl.read_json(asked.stdout.encode()).to_dicts()] == [2, 4, 6]


def test_the_command_says_what_it_does_not_look_at_and_keeps_its_input(tmp_path):
    table = people(5).with_columns(do_not_call=pl.lit("yes"))
    write_table(table, tmp_path / "people.csv")
    asked = ("plan", "armman", "--arms", "people.csv", "--budget", 2, "--out")
    assert "add --exclude do_not_call" in run(*asked, "list.csv", folder=tmp_path).stderr
    done = run(*asked, "people.csv", folder=tmp_path)
    assert done.returncode == 2
    assert "is the table of people itself" in done.stderr
    assert read_table(tmp_path / "people.csv").columns == table.columns


def test_the_command_refuses_in_one_line_and_leaves_the_old_file(tmp_path):
    write_table(people().drop("state"), tmp_path / "people.parquet")
    (tmp_path / "plan.csv").write_text("old")
    done = run(
        "plan", "armman", "--arms", "people.parquet", "--budget", 7, "--out", "plan.csv",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("prefermab: people.parquet: the column 'state' is missing")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "plan.csv").read_text() == "old"


def test_the_same_plan_gives_the_same_file_everywhere(tmp_path):
    table = people()
    table.write_csv(tmp_path / "people.csv")
    made = run(
        "plan", "armman", "--arms", "people.csv", "--budget", 7, "--out", "command.csv",
        folder=tmp_path,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    MODEL.plan(pm.tables.read_table(tmp_path / "people.csv"), 7).write(tmp_path / "python.csv")
    assert (tmp_path / "python.csv").read_bytes() == (tmp_path / "command.csv").read_bytes()
    with pm.Programme(tmp_path / "calls.db", MODEL) as programme:
        programme.join(table)
        programme.plan(7).write(tmp_path / "programme.csv")
    ours, theirs = (pl.read_csv(tmp_path / f"{name}.csv") for name in ("command", "programme"))
    assert theirs.select(ours.columns[:8]).equals(ours.select(ours.columns[:8]))
