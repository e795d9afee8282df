"""A rule of one's own, in one small class, works everywhere that rules do."""

import json
from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.programme.bulk.driver import plan_folder
from prefermab.programme.evidence.simulated_trials import TrialProgramme, draw_pool
from prefermab.programme.planning.rules.base import Bars, Rules, Ties, setting
from prefermab.programme.planning.rules.shared import SharedLimits
from services import Served, fast_passwords

MODEL = pm.load("armman")


class PerStreet(Ties):
    """At most so many people of a street in a round."""

    name = "per_street"

    street_column: str | None = setting(
        None, "Column of the street of each person.", part=None, column="texts", label="Street"
    )
    per_street: int = setting(0, "Most people of a street.", part=name, label="People of a street")

    @property
    def label_column(self) -> str | None:
        return self.street_column if self.per_street else None

    def limits(self, label: np.ndarray, names: tuple[str, ...]) -> SharedLimits:
        return SharedLimits.of(label, names, people=np.full(len(names), float(self.per_street)))

    def words(self) -> Mapping[str, tuple[str, str]]:
        return {self.name: ("people of a street", f"at most {self.per_street}")}


class Resting(Bars):
    """People who asked for a pause are left in peace."""

    name = "pause"
    kept_out = "asked for a pause"

    pause_column: str | None = setting(None, "Column of yes and no.", part=name, column="truths")

    def barred(self, people):
        nobody = np.zeros(people.size, bool)
        return people.flags(self.pause_column) if self.pause_column else nobody

    def words(self):
        return {self.name: ("people who asked for a pause", f"column {self.pause_column}")}


def people(size: int = 24) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": range(1, size + 1),
            "state": ["persuadable"] * size,
            "street": [("Oak", "Elm", "Ash")[i % 3] for i in range(size)],
            "pause": ["yes" if i == 0 else "no" for i in range(size)],
            "feature_0": np.linspace(0.5, -0.5, size).round(3),
        }
    )


RULES = pm.Rules(street_column="street", per_street=2)


def chosen_streets(frame: pl.DataFrame) -> list[str]:
    return sorted(frame.filter(pl.col("action") != "none")["street"].drop_nulls())


def test_it_holds_in_python_and_its_price_is_the_gain_without_it():
    made, free = (MODEL.plan(people(), 9, rules=rules) for rules in (RULES, None))
    assert chosen_streets(made.frame) == ["Ash", "Ash", "Elm", "Elm", "Oak", "Oak"]
    assert free.summary.chosen == 9
    cost = made.summary.rules["per_street"]
    assert cost == pytest.approx(free.summary.gain - made.summary.gain)
    assert cost is not None
    assert cost > 0
    assert made.summary.gain <= made.summary.bound < free.summary.gain


def test_it_holds_on_the_command_line(tmp_path, capsys):
    people().write_csv(tmp_path / "people.csv")
    given = ["--arms", str(tmp_path / "people.csv"), "--budget", "9", "--json"]
    rules = ["--street-column", "street", "--per-street", "2"]
    dispatch(["plan", "armman", *given, *rules, "--out", str(tmp_path / "plan.csv")])
    assert json.loads(capsys.readouterr().out)["rules"].keys() == {"per_street"}
    assert len(chosen_streets(pl.read_csv(tmp_path / "plan.csv"))) == 6
    with pytest.raises(SystemExit):
        dispatch(["plan", "--help"])
    assert "Most people of a street." in capsys.readouterr().out


def test_it_holds_in_a_folder(tmp_path):
    (tmp_path / "people").mkdir()
    for part in range(2):
        people()[part * 12 : part * 12 + 12].write_parquet(tmp_path / f"people/{part}.parquet")
    plan_folder("armman", tmp_path / "people", tmp_path / "plan", 9, RULES, rows=5)
    assert len(chosen_streets(pl.read_parquet(tmp_path / "plan/*.parquet"))) == 6


def test_a_programme_stores_and_replays_it(tmp_path):
    with pm.Programme(tmp_path / "calls.db", MODEL) as programme:
        programme.join(people())
        made = programme.plan(9, RULES)
        assert programme.plan(9, RULES).attempt == made.attempt == 1
        with pytest.raises(pm.InputError, match="the rule per_street changed from 2 to 1"):
            programme.plan(9, pm.Rules(street_column="street", per_street=1))
    with pm.Programme.open(tmp_path / "calls.db", MODEL) as programme:
        programme.replay(1)
        assert len(chosen_streets(programme.planned(1).frame)) == 6


def test_it_holds_in_the_api_and_in_the_form(tmp_path):
    fast_passwords()
    served = Served(tmp_path, MODEL)
    served.desk.programme().join(people().with_columns(pl.col("id") + 100))
    paul = served.client("Paul")
    page = paul.get("/week/plan").text
    assert "People of a street" in page
    assert "pause_column" not in page  # a setting without a label
    form = {"budget": "20", "street_column": "street", "per_street": "1"}
    assert paul.post("/week/plan", data=form).headers["location"] == "/week?said=planned"
    plan = served.desk.planned(1, 1)
    assert chosen_streets(plan.frame) == ["Ash", "Elm", "Oak"]
    page = paul.get("/week").text
    assert "people of a street" in page
    assert "at most 1" in page
    assert 'name="per_street" value="1"' in paul.get("/week/plan").text
    body = {"budget": 20, "again": True, "rules": {"street_column": "street", "per_street": 2}}
    answer = served.token("Paul", "read", "plan").post("/api/v1/plans", json=body)
    assert answer.json()["asked"]["rules"]["per_street"] == 2
    wrong = {"budget": 20, "rules": {"per_stret": 2}}
    answer = served.token("Paul", "plan").post("/api/v1/plans", json=wrong)
    assert answer.status_code == 400
    assert "did you mean 'per_street'" in answer.text


def test_it_is_kept_by_lots_and_in_simulated_trials():
    made = MODEL.plan(people(), 9, rules=RULES, explore=1.0, seed=3)
    assert chosen_streets(made.frame) == ["Ash", "Ash", "Elm", "Elm", "Oak", "Oak"]
    programme = TrialProgramme(0.5, rules=RULES, table=people())
    quotas = draw_pool(MODEL, size=50, programme=programme).quotas
    assert quotas is not None
    np.testing.assert_allclose(quotas.per_person[:3], 2 / 8)


def test_a_rule_that_bars_people_says_why():
    made = MODEL.plan(people(), 3, rules=pm.Rules(pause_column="pause"))
    first = made.frame.row(0, named=True)
    assert (first["action"], first["reason"]) == ("none", "asked for a pause")
    assert made.summary.kept_out == {"asked for a pause": 1}
    assert "1 asked for a pause" in str(made.summary)
    with pytest.raises(pm.InputError, match="locked in but is asked for a pause"):
        MODEL.plan(people(), 3, rules=pm.Rules(pause_column="pause", lock_ids=[1]))


@pytest.mark.parametrize("given", ["José", "Jose\u0301", " José\u200b"])
def test_names_that_look_the_same_are_one_worker(given):
    frame = people().with_columns(worker=pl.Series(["José", "Jose\u0301 ", "\u200bJosé"] * 8))
    rules = pm.Rules(worker_column="worker", budgets={given: 2})
    assert MODEL.plan(frame, budget=9, rules=rules).summary.chosen == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cooldwn": 2}, "unknown rule 'cooldwn': did you mean 'cooldown'"),
        ({"cooldown": "two"}, "cooldown must be a number"),
        ({"per_street": 1.5}, "per_street must be a whole number"),
        ({"min_share": [0.3], "group_column": "g"}, "min_share must be numbers by name"),
        ({"budgets": {"Ana": "x"}, "worker_column": "w"}, "budgets of 'Ana' must be a number"),
        ({"exclude_column": 7}, "exclude_column must be a text"),
        ({"lock_ids": [[1]]}, "lock_ids must be ids"),
        ({"lock_ids": {"a": 1}}, "lock_ids must be ids"),
        ({"exclude_ids": b"ab"}, "exclude_ids must be ids"),
        ({"exclude_ids": [True]}, "exclude_ids must be ids"),
        ({"cooldown": True}, "cooldown must not be True"),
    ],
)
def test_settings_of_another_kind_are_refused(given, message):
    with pytest.raises(pm.InputError, match=message):
        Rules(**given)
