"""Names of columns: every reader finds them in any spelling, and none that matters is missed."""

import uuid
from pathlib import Path

import polars as pl
import pytest

import prefermab as pm
from commands import run
from mothers import people
from prefermab.errors import InputWarning
from prefermab.programme.bulk.driver import plan_folder
from prefermab.programme.evidence.designs import Design
from prefermab.programme.evidence.protocol import randomise
from prefermab.programme.evidence.trial_logs import read_outcomes
from prefermab.programme.logs.reading import read_log
from prefermab.programme.planning.printed import PLANNED
from prefermab.programme.planning.roster import model_columns
from prefermab.programme.store import Programme
from prefermab.programme.tables.naming import match_names, refuse_similar_names
from prefermab.programme.tables.table import write_table

MODEL = pm.load("armman")
RULES = pm.Rules(
    exclude_column="do_not_call", cooldown=1, group_column="region", min_share={"north": 0.2},
    worker_column="nurse", budgets={"Ana": 9},
)  # fmt: skip
BUDGET = 12

SPELLED = {
    "capitals": str.upper,
    "capital letters": str.title,
    "blanks": lambda name: f" {name.replace('_', ' ')} ",
    "hyphens": lambda name: name.replace("_", "-").capitalize(),
    "nothing": lambda name: name.replace("_", ""),
    "accents": lambda name: name.replace("o", "ó").replace("a", "â"),
}


def table() -> pl.DataFrame:
    """People with every kind of column that a plan reads."""
    found = people(24)
    each = pl.Series(range(24))
    return found.with_columns(
        opt_in=each % 4 != 1, cost_call=1.0 + each % 3, do_not_call=each % 5 == 2,
        rounds_since_action=each % 4,
    )  # fmt: skip


def respelled(frame: pl.DataFrame, how: str) -> pl.DataFrame:
    return frame.rename(SPELLED[how])


def planned(frame: pl.DataFrame) -> pl.DataFrame:
    """What a plan says of everybody, in the order of ids."""
    return frame.select(name for name in PLANNED if name in frame.columns).sort("id")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "calls.db")
    return f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"


def by_model(frame, rules, _):
    return MODEL.plan(frame, BUDGET, rules=rules).frame


def by_what_if(frame, rules, _):
    return MODEL.what_if(frame, [3, BUDGET], rules=rules)


def by_command(frame, rules, folder):
    write_table(frame, folder / "people.parquet")
    ask = ["plan", "armman", "--arms", "people.parquet", "--budget", BUDGET, "--out", "out.parquet"]
    if rules is RULES:
        ask += ["--exclude", "do_not_call", "--cooldown", 1, "--group", "region", "--min-share"]
        ask += ["north=0.2", "--worker", "nurse", "--worker-budgets", "Ana=9"]
    done = run(*ask, folder=folder)
    if done.returncode:
        raise pm.InputError(done.stderr)
    return pl.read_parquet(folder / "out.parquet")


def by_folder(frame, rules, folder):
    """The people in two files, of which the second one is spelled plainly."""
    parts = folder / "parts"
    parts.mkdir()
    frame.head(10).write_parquet(parts / "0.parquet")
    plain = match_names(frame.columns, table().columns, "the table")
    rest = frame.slice(10).rename({given: name for name, given in plain.items()})
    rest.write_parquet(parts / "1.parquet")
    plan_folder(MODEL, parts, folder / "plan", BUDGET, rules)
    written = [pl.read_parquet(file) for file in sorted((folder / "plan").glob("*.parquet"))]
    return pl.concat(written, how="diagonal_relaxed")


READERS = [by_model, by_what_if, by_command, by_folder]


@pytest.mark.parametrize("how", SPELLED)
@pytest.mark.parametrize("reader", READERS)
def test_a_plan_reads_columns_in_any_spelling(reader, how, tmp_path):
    for one in ("plain", "other"):
        (tmp_path / one).mkdir()
    expected = reader(table(), RULES, tmp_path / "plain")
    found = reader(respelled(table(), how), RULES, tmp_path / "other")
    if reader is by_what_if:
        assert found.equals(expected)
    else:
        assert (expected["action"] == "call").any()
        assert planned(found).equals(planned(expected))


@pytest.mark.parametrize("reader", READERS)
def test_nobody_who_opted_out_is_called_and_no_budget_overspent(reader, tmp_path):
    """The two faults that began this: 0 opted out, and costs of 3 within a budget of 2."""
    everyone = table().select("id", "state", *MODEL.feature_names)
    out = everyone.with_columns(OPT_IN=pl.lit("no"))
    dear = everyone.with_columns(pl.lit(BUDGET + 1.0).alias("Cost_Call"))
    for place, frame in enumerate((out, dear)):
        (tmp_path / str(place)).mkdir()
        found = reader(frame, None, tmp_path / str(place))
        if reader is by_what_if:
            assert found["chosen"].sum() == 0
        else:
            assert set(found["action"]) == {"none"}


@pytest.mark.parametrize("how", SPELLED)
def test_a_programme_reads_columns_in_any_spelling(place, how):
    frame = table()
    with Programme(place, MODEL) as programme:
        programme.join(respelled(frame, how))
        known = programme.roster().drop("rounds_since_seen")
        assert set(known.columns) >= {"id", "state", "opt_in", "cost_call", *MODEL.feature_names}
        assert known["opt_in"].to_list() == frame["opt_in"].to_list()
        seen = respelled(pl.DataFrame({"id": ["p0"], "state": ["lost cause"]}), how)
        assert (
            programme.observe(seen.with_columns(pl.lit(5.0).alias(SPELLED[how]("cost_call")))) == 1
        )
        changed = programme.roster().row(0, named=True)
        assert (changed["state"], changed["cost_call"]) == ("lost cause", 5.0)
        plan = programme.plan(BUDGET)
        barred = frame.filter(~pl.col("opt_in"))["id"]
        assert set(plan.frame.filter(pl.col("id").is_in(barred.implode()))["action"]) == {"none"}
        done = plan.frame.filter(pl.col("action") == "call").select("id", "action")
        done = done.with_columns(reached=False, why=pl.lit("no answer"))
        programme.record(respelled(done, how))
        actions = programme.history().actions
        assert actions["reached"].to_list() == [False] * done.height


TWICE = ["id", "state", "opt_in", "cost_call", "feature_0"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", TWICE)
def test_two_columns_of_one_name_are_refused(reader, name, tmp_path):
    frame = table().with_columns(pl.col(name).alias(name.upper().replace("_", "-")))
    with pytest.raises(pm.InputError, match=f"the column '{name}' may be '{name}' or '") as error:
        reader(frame, None, tmp_path)
    assert str(error.value).strip().count("\n") == 0


def test_two_columns_of_one_name_do_not_join(place):
    with Programme(place, MODEL) as programme:
        with pytest.raises(pm.InputError, match="'opt_in' may be 'opt_in' or 'OPT IN'"):
            programme.join(
                table().with_columns(pl.lit(1).alias("OPT IN")).drop("rounds_since_action")
            )
        assert programme.roster().height == 0


NEARLY = {
    "opt_inn": "opt_in", "OptedIn": "opt_in", "opt_im": "opt_in", "opt-in (yes/no)": "opt_in",
    "phone_opt_in": "opt_in", "optout": "opt_in", "Opted-Out": "opt_in", "costs_call": "cost_call",
    "cost_cal": "cost_call", "call cost": "cost_call", "cost_per_call": "cost_call",
    "featur_0": "feature_0",
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("given", ["optout", "opt_inn", "costs_call"])
def test_a_column_that_is_nearly_one_that_matters_is_refused(reader, given, tmp_path):
    frame = table().drop("opt_in", "cost_call").with_columns(pl.lit(1).alias(given))
    with pytest.raises(pm.InputError, match=f"the column '{given}' is not read") as error:
        reader(frame, None, tmp_path)
    assert "(--ignore" in str(error.value)
    assert str(error.value).strip().count("\n") == 0


@pytest.mark.parametrize(("given", "meant"), NEARLY.items())
def test_what_is_nearly_a_name_is_read_ignored_or_asked_about(given, meant):
    frame = table().drop(meant).with_columns(pl.lit(False).alias(given))
    with pytest.raises(pm.InputError, match="is not read"):
        MODEL.plan(frame, BUDGET)
    with pytest.raises(pm.InputError, match="is not read"):
        MODEL.what_if(frame, [BUDGET])
    ignored = MODEL.plan(frame, BUDGET, rules=pm.Rules(ignore_columns=[given])).frame
    assert planned(ignored).equals(planned(MODEL.plan(frame.drop(given), BUDGET).frame))
    assert given in ignored.columns  # it is copied to the list
    assert MODEL.plan(frame, BUDGET, rules=pm.Rules(exclude_column=given)).summary.people == 24


def test_opt_out_beside_opt_in_is_asked_about_too():
    frame = table().with_columns(opt_out=~pl.col("opt_in"), opt_in_date=pl.lit("2026-01-05"))
    with pytest.raises(pm.InputError, match=r"the column 'opt_out' .* \(--exclude opt_out\)"):
        MODEL.plan(frame, BUDGET)
    assert MODEL.plan(frame, BUDGET, rules=pm.Rules(exclude_column="opt_out")).summary.chosen


def test_the_command_takes_columns_to_ignore(tmp_path):
    write_table(table().drop("opt_in").with_columns(optout=pl.lit("no")), tmp_path / "people.csv")
    ask = ("plan", "armman", "--arms", "people.csv", "--budget", 3, "--out", "list.csv")
    assert run(*ask, folder=tmp_path).returncode == 2
    assert not (tmp_path / "list.csv").exists()
    for more in ("--ignore", "--exclude"):
        assert run(*ask, more, "optout", folder=tmp_path).returncode == 0


ORDINARY = """
name full_name first_name last_name surname sex gender age age_group dob birth_date phone
phone2 mobile telephone email address street village ward district region province
state_of_residence country postcode latitude longitude gps clinic facility hospital nurse
doctor worker asha supervisor team language religion caste education occupation income
household household_size children parity gravida pregnancies anc_visits weeks_pregnant edd
delivery_date weight height bmi muac temperature pulse systolic diastolic glucose hba1c
hiv_status tb_status art_start regimen viral_load cd4 adherence missed_doses last_visit
next_visit visits calls call_time call_date last_call callback notes note remarks comment
comments reason status stage level option options optic optician opinion operation operator
opening adopted_in adopting co_opted cooptation coast cast cost_centre costume post
postal_code call_centre_cost_code last_contact contact contact_date enrolled enrolment_date
joined_on left_on created_at updated_at device app_version consented_by photo url priority
risk risk_score score rank price group cluster arm treatment control phase cohort batch
source feature feature_6 feature_10 state_2 ids id_card national_id patient_id record_id
case_id uuid
""".split()  # noqa: SIM905


def test_ordinary_columns_are_never_refused():
    """False alarms: none among the names above and those of all tables of the tests."""
    tables = Path(__file__).parents[2].glob("data/exports/*/*.csv")
    headers = {name for file in tables for name in pl.read_csv(file, n_rows=0).columns}
    names = [*ORDINARY, *headers]
    assert len(names) > 200
    known = [*model_columns(MODEL)[1:], "rounds_since_action"]
    for name in dict.fromkeys(names):
        refuse_similar_names([name], known, "people.csv", "drop it")


@pytest.mark.parametrize(
    "name", ["opt_inn", "cost_cal", "featur_0", "round_since_action"]
)  # fmt: skip
def test_a_programme_refuses_what_is_nearly_a_name(place, name):
    frame = table().drop("opt_in", "cost_call", "feature_0", "rounds_since_action")
    with Programme(place, MODEL) as programme:
        with pytest.raises(pm.InputError, match=f"join: the column '{name}' is not read"):
            programme.join(frame.with_columns(pl.lit(1).alias(name)))
        assert programme.roster().height == 0
        # Rules can name a column of this kind later, so it may be stored; a plan asks.
        programme.join(frame.with_columns(optout=pl.lit(False)))
        with pytest.raises(pm.InputError, match=r"round 1: the column 'optout' is not read"):
            programme.plan(BUDGET)
        assert programme.plans().height == 0
        made = programme.plan(BUDGET, pm.Rules(ignore_columns=["optout"]))
        assert programme.plan(BUDGET, pm.Rules(ignore_columns=["optout"])).attempt == made.attempt
        programme.replay(1)


def test_a_plan_of_an_older_version_is_made_again_whatever_its_columns_are_called(
    tmp_path, monkeypatch
):
    place, check = tmp_path / "calls.db", "prefermab.programme.store.request.check_columns"
    with Programme(place, MODEL) as programme:
        programme.join(table().drop("rounds_since_action").with_columns(optout=pl.lit(False)))
        with pytest.raises(pm.InputError, match="'optout' is not read"):
            programme.plan(BUDGET)
        with monkeypatch.context() as older:  # older versions did not ask
            older.setattr(check, lambda *_: None)
            made = programme.plan(BUDGET)
    with Programme.open(place, MODEL) as programme:
        assert programme.replay(1).frame.equals(made.frame)


def test_the_record_reads_the_action_and_says_so(place):
    with Programme(place, MODEL) as programme:
        programme.join(table().drop("rounds_since_action").with_columns(action=pl.lit("visit")))
        plan = programme.plan(BUDGET)
        assert set(plan.frame["action_given"]) == {"visit"}
        done = plan.frame.filter(pl.col("list") == "chosen")
        with pytest.raises(pm.InputError, match="'reachd' is not read, but is nearly called 'rea"):
            programme.record(done.with_columns(reachd=pl.lit(False)))
        with pytest.warns(InputWarning, match="'action'; 'action_given' is not read"):
            programme.record(done)
        assert programme.history().actions["action"].to_list() == ["call"] * done.height


def test_a_list_keeps_a_column_of_the_table_under_a_free_name():
    frame = people(5).with_columns(action=pl.lit("a"), action_given=pl.lit("b"), Rank=pl.lit("c"))
    made = MODEL.plan(frame.rename({"id": "ID"}), 1).frame
    assert set(made["action_given"]) == {"b"}
    assert set(made["action_given_given"]) == {"a"}
    assert set(made["Rank_given"]) == {"c"}
    assert "ID" not in made.columns


def test_names_that_differ_only_a_little_are_told_apart_by_their_spelling():
    known = ["dose_1", "dose1", "age"]
    assert match_names(["dose1", "AGE"], known, "it") == {"dose1": "dose1", "age": "AGE"}
    assert match_names(["DOSE1"], known, "it") == {}
    assert match_names(["dose_1_5"], ["dose_15"], "it") == {}


LOG = pl.DataFrame(
    {"id": [1] * 4 + [2] * 4, "time": [1, 2, 3, 4] * 2, "state": ["good", "bad"] * 4,
     "action": [0, 1, 0, 0] * 2, "available": [False, True, True, True] * 2,
     "age": [30] * 4 + [40] * 4}
)  # fmt: skip


@pytest.mark.parametrize("how", SPELLED)
def test_a_log_is_read_in_any_spelling(how):
    rewards = {"good": 1, "bad": 0}
    plain, other = (read_log(one, rewards=rewards) for one in (LOG, respelled(LOG, how)))
    assert plain.found == other.found
    assert other.found.unavailable == 2
    assert len(other.feature_names) == 1


def test_a_log_with_a_column_that_is_nearly_one_that_matters_is_refused():
    near = LOG.rename({"available": "avaliable"})
    with pytest.raises(
        pm.InputError, match=r"'avaliable' is not read.*'available'.*\(--features\)"
    ):
        read_log(near, rewards={"good": 1, "bad": 0})
    found = read_log(near, rewards={"good": 1, "bad": 0}, features=["avaliable"])
    assert found.feature_names == ("avaliable",)


@pytest.mark.parametrize("how", SPELLED)
def test_a_trials_log_is_read_in_any_spelling(how):
    everyone = pl.DataFrame({"id": range(8)})
    protocol = randomise(respelled(everyone, how), Design("individual", 2), seed=1)
    log = pl.DataFrame(
        {"id": [*range(8)] * 3, "time": [1] * 8 + [2] * 8 + [3] * 8, "state": ["good"] * 24,
         "action": ["call"] * 16 + [None] * 8, "cost": [2.0] * 24, "index": [1.0] * 24,
         "available": [False] * 24}
    )  # fmt: skip
    about = {"good": 1.0}, "none", None, "log.csv"
    rows, strangers = read_outcomes(protocol, respelled(log, how), *about)
    assert rows.equals(read_outcomes(protocol, log, *about)[0])
    assert (strangers, set(rows["index"])) == (0, {0.0})
    with pytest.raises(pm.InputError, match="'avaliable' is not read"):
        read_outcomes(protocol, log.rename({"available": "avaliable"}), *about)
