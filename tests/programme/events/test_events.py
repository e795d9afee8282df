"""Events to logs: what the map says, counts that add up, exports of other programs, pseudonyms."""

import dataclasses
import datetime
import json
import random
import re
import shutil
import tomllib
from collections import defaultdict
from pathlib import Path

import hypothesis.strategies as st
import polars as pl
import pytest
import xlsxwriter
from hypothesis import given, settings

import prefermab as pm
from prefermab import cli
from prefermab.cli.options import hide_ids, hide_people, no_rules
from prefermab.cli.plan import PlanCommand
from prefermab.errors import InputWarning
from prefermab.programme.events.mapping import read_map
from prefermab.programme.events.propose import propose_map
from prefermab.programme.logs.reading import read_log
from prefermab.programme.planning.rules.limits import unused_columns
from prefermab.programme.tables.privacy import pseudonyms, read_key
from prefermab.programme.tables.table import read_table
from prefermab.programme.tables.workbooks import write_sheets

HERE = Path(__file__).parents[2]
MAPS, EXPORTS = HERE.parent / "examples" / "maps", HERE / "data" / "exports"

MAP = {
    "who": "mother", "when": "day", "round": "1w", "rows": "all",
    "action": {"nothing": "none", "labels": {"visit": "kind = 'visit'", "call": "kind = 'call'"}},
    "state": {"value": "seconds", "several": "max",
              "labels": {"listens": "value >= 30", "silent": "TRUE"}},
}  # fmt: skip

CALLS = pl.DataFrame(
    {
        "mother": ["7", "7", "7", "8", None, "9"],
        "day": ["2026-01-05", "2026-01-07", "2026-01-20", "2026-01-06", "2026-01-06", None],
        "kind": ["call", "visit", "sms", "call", "call", "call"],
        "seconds": [45, 0, 12, None, 50, 50],
    }
)


def changed(**changes) -> dict:
    """The map with some of its parts changed; a name of two parts is written with two lines."""
    made = json.loads(json.dumps(MAP))
    for name, value in changes.items():
        part, _, field = name.partition("__")
        (made.setdefault(part, {}) if field else made)[field or part] = value
    return made


def rows(made, person="7"):
    return made.log.filter(id=person).select("time", "state", "action").rows()


def weeks(*days):
    return [datetime.date(2026, 1, day) for day in days]


def test_a_row_for_each_person_and_week():
    made = pm.tables.from_events(CALLS, MAP)
    first, second, third = weeks(5, 12, 19)
    assert rows(made) == [
        (first, "listens", "visit"), (second, None, "none"), (third, "silent", "none"),
    ]  # fmt: skip
    assert rows(made, "8") == [
        (first, None, "call"), (second, None, "none"), (third, None, "none"),
    ]  # fmt: skip
    counts = made.counts
    assert (counts.read, counts.used) == (6, 4)
    assert counts.dropped == {"without a person (mother)": 1, "without a time (day)": 1}
    assert (counts.people, counts.rounds, counts.rows) == (2, 3, 6)
    assert (counts.with_events, counts.several, counts.unknown_states) == (3, 1, 4)
    assert counts.actions == {"none": 4, "visit": 1, "call": 1}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"value": "seconds", "several": "last", "labels": {}}, "0"),
        ({"value": "seconds", "several": "first", "labels": {}}, "45"),
        ({"value": "seconds", "several": "min", "labels": {}}, "0"),
        ({"value": "seconds", "several": "mean", "labels": {}}, "22.5"),
        ({"value": "seconds", "several": "count", "labels": {}}, "2"),
        ({"value": "seconds", "several": "sum", "labels": {"much": "value > 44"}}, "much"),
        ({"value": "seconds >= 30", "several": "any", "labels": {}}, "true"),
        ({"value": "kind", "several": "worst", "order": ["sms", "visit", "call"]}, "visit"),
        ({"value": "CASE WHEN seconds > 40 THEN 'good' ELSE 'bad' END", "several": "last"}, "bad"),
    ],
)
def test_what_several_events_in_a_round_mean(state, expected):
    made = pm.tables.from_events(CALLS, changed(state=state))
    assert rows(made)[0][1] == expected


def test_what_no_event_means():
    no_event = pm.tables.from_events(CALLS, changed(state__no_event="away"))
    assert [state for _, state, _ in rows(no_event)] == ["listens", "away", "silent"]
    carried = pm.tables.from_events(CALLS, changed(state__carry=True))
    assert [state for _, state, _ in rows(carried)] == ["listens", "listens", "silent"]
    between = pm.tables.from_events(CALLS, changed(rows="between"))
    assert len(rows(between, "8")) == 1
    events = pm.tables.from_events(CALLS, changed(rows="events"))
    assert [time for time, _, _ in rows(events)] == weeks(5, 19)


def test_an_outcome_in_the_row_of_its_action_is_the_next_state():
    moments = pl.DataFrame(
        {"who": [1, 1, 1], "n": [4, 5, 6], "sent": ["TRUE", None, "FALSE"], "steps": [200, 3, 150],
         "free": ["yes", "no", "yes"]}
    )  # fmt: skip
    made = pm.tables.from_events(
        moments,
        {"who": "who", "when": "n", "round": 1, "available": "free",
         "action": {"nothing": "none", "labels": {"message": "sent"}, "unknown": "sent IS NULL"},
         "state": {"value": "steps", "of": "next round",
                   "labels": {"walks": "value >= 100", "sits": "TRUE"}}},
    )  # fmt: skip
    assert made.log.drop("id").rows() == [
        (4, None, "message", True), (5, "walks", None, False), (6, "sits", "none", True),
        (7, "walks", None, None),
    ]  # fmt: skip
    assert made.counts.actions == {"none": 1, "message": 1, "unknown": 2}


def test_which_events_count():
    twice = pl.concat([CALLS, CALLS.head(1)])
    made = pm.tables.from_events(
        twice, changed(keep="kind <> 'sms'", once=["mother", "day"], last=datetime.date(2026, 1, 6))
    )
    assert made.counts.dropped == {
        "not meant by keep": 1, "without a person (mother)": 1, "without a time (day)": 1,
        "repeated (mother, day)": 1, "after 2026-01-06": 1,
    }  # fmt: skip
    assert made.counts.used == 2
    assert made.counts.read == made.counts.used + sum(made.counts.dropped.values())


@pytest.mark.parametrize(
    ("length", "starts", "expected"),
    [
        ("1w", "sunday", (2026, 1, 4)),
        ("1w", "saturday", (2026, 1, 3)),
        ("3d", "monday", (2026, 1, 5)),
        ("2w", "monday", (2026, 1, 5)),
        ("1m", "monday", (2026, 1, 1)),
        ("1q", "monday", (2026, 1, 1)),
        ("1y", "monday", (2026, 1, 1)),
    ],
)
def test_rounds_begin_where_the_map_says(length, starts, expected):
    made = pm.tables.from_events(CALLS, changed(round=length, week_starts=starts))
    assert made.log["time"].min() == datetime.date(*expected)


def test_features_of_events_and_of_people(tmp_path):
    CALLS.write_csv(tmp_path / "calls.csv")
    (tmp_path / "people.csv").write_text("id;age\n07;31\n7;33\n8;45,5\n")
    people = {"table": "people.csv", "who": "id", "features": {"age": "age", "old": "age > 40"}}
    text = json.dumps(changed(features={"how": "kind"}, people=people))
    (tmp_path / "map.toml").write_text(_as_toml(json.loads(text)))
    made = pm.tables.from_events(tmp_path / "calls.csv", tmp_path / "map.toml")
    assert made.log.filter(id="7").select("how", "age", "old").rows() == [
        ("visit", 33.0, False), (None, 33.0, False), ("sms", 33.0, False),
    ]  # fmt: skip
    (tmp_path / "people.csv").write_text("id,age\n7,31\n7,33\n")
    with pytest.raises(pm.InputError, match="7 is in row 2 and in another row"):
        pm.tables.from_events(tmp_path / "calls.csv", tmp_path / "map.toml")


def _as_toml(value, name="") -> str:
    """A dictionary as TOML; enough for maps."""
    plain = {k: v for k, v in value.items() if not isinstance(v, dict)}
    parts = {k: v for k, v in value.items() if isinstance(v, dict)}
    lines = [f"[{name}]"] if name else []
    lines += [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in plain.items()]
    lines += [_as_toml(part, f"{name}.{k}".strip(".")) for k, part in parts.items()]
    return "\n".join(lines) + "\n"


# A plain reference


def by_hand(events):
    """Weeks from Monday, the most seconds, the most important action: in plain Python."""
    found = defaultdict(list)
    for who, day, kind, seconds in events:
        week = day - datetime.timedelta(days=day.weekday())
        found[who, week].append((kind, seconds))
    all_weeks = sorted({week for _, week in found})
    grid = range((all_weeks[-1] - all_weeks[0]).days // 7 + 1)
    log = {}
    for who in sorted({who for who, _ in found}):
        for step in grid:
            week = all_weeks[0] + datetime.timedelta(days=7 * step)
            here = found.get((who, week), [])
            most = max((s for _, s in here if s is not None), default=None)
            kinds = [kind for kind, _ in here]
            state = None if most is None else "listens" if most >= 30 else "silent"
            action = "visit" if "visit" in kinds else "call" if "call" in kinds else "none"
            log[who, week] = (state, action)
    return log


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_the_log_is_that_of_a_plain_reference(seed):
    rng = random.Random(seed)
    start = datetime.date(2025, 12, 1)
    events = [
        (f"p{rng.randrange(6)}", start + datetime.timedelta(days=rng.randrange(60)),
         rng.choice(["call", "visit", "sms"]), rng.choice([None, *range(0, 90, 7)]))
        for _ in range(rng.randrange(1, 60))
    ]  # fmt: skip
    frame = pl.DataFrame(
        events, {"mother": pl.String, "day": pl.Date, "kind": pl.String, "seconds": pl.Int64},
        orient="row",
    )  # fmt: skip
    made = pm.tables.from_events(frame, MAP)
    log = {(who, week): (state, action) for who, week, state, action in made.log.iter_rows()}
    assert log == by_hand(events)
    counts = made.counts
    assert counts.used == len(events)
    assert counts.rows == len(log) == sum(counts.actions.values())


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": "person"}, "the column 'person' is missing"),
        ({"when": "kind"}, "must hold dates such as 2026-01-31, but row 1 holds 'call'"),
        ({"round": "7"}, "round must be a length"),
        ({"round": 7}, "must hold whole numbers"),
        ({"round": "0w"}, "round must be a length"),
        ({"rows": "some"}, "Invalid enum value 'some'"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"state__value": "loudness"}, "state.value uses the column 'loudness', which is missing"),
        ({"state__value": "seconds >"}, "state.value cannot be evaluated"),
        ({"state__value": "kind"}, "must hold numbers, but row 1 holds 'call'"),
        ({"state__several": "worst"}, "state.order must list all values"),
        ({"state": {"value": "kind", "several": "worst", "order": ["call"]}}, "'sms' is not in"),
        ({"action__nothing": "call"}, "must not be one of action.labels"),
        ({"action__labels": {"call": "seconds"}}, "must hold true or false"),
        ({"keep": "kind = 'fax'"}, "no event is left"),
        ({"first": 3}, "first must be a date"),
        ({"people": {"table": "none.csv", "features": {}}}, "none.csv: there is no such file"),
        ({"join": [{"table": "none.csv", "on": {"mother": "id"}}]}, "there is no such file"),
    ],
)
def test_a_mistake_in_a_map_is_named(change, message):
    with pytest.raises(pm.InputError, match=message) as error:
        pm.tables.from_events(CALLS.drop_nulls(), changed(**change))
    assert "\n" not in str(error.value)


def test_an_answer_that_is_there_twice_is_refused():
    wide = changed(wide={"by": ["mother"], "names": "kind", "values": "seconds"})
    with pytest.raises(pm.InputError, match=r"the answer 'call' .* occurs more than once"):
        pm.tables.from_events(pl.concat([CALLS, CALLS]), wide)


def test_numbers_that_may_be_days_of_excel_are_asked_about():
    days = pl.DataFrame({"mother": [1, 1], "day": [46027, 46034], "kind": "call", "seconds": 5})
    with pytest.raises(pm.InputError, match=r"days of Excel \(2026-01-05\) or counts"):
        pm.tables.from_events(days, MAP)
    assert pm.tables.from_events(days, changed(form="excel")).log["time"].to_list() == weeks(5, 12)
    seconds = days.with_columns(day=(pl.col("day") - 25569) * 86400)
    made = pm.tables.from_events(seconds, changed(form="unix"))
    assert made.log["time"].to_list() == weeks(5, 12)


@pytest.mark.parametrize(
    ("day", "change", "message"),
    [
        ([1.5, 2.0], {"round": 1}, "must hold whole numbers, but row 1 does not"),
        ([True, False], {}, "must hold dates, not Boolean"),
        (["a", "b"], {"form": "excel"}, "must hold numbers, but row 1 holds 'a'"),
        ([1.0, 2.0], {"round": 1, "first": datetime.date(2026, 1, 5)}, "first must be a whole"),
    ],
)
def test_times_that_are_none_are_named(day, change, message):
    events = pl.DataFrame({"mother": [1, 1], "day": day, "kind": "call", "seconds": 5})
    with pytest.raises(pm.InputError, match=message):
        pm.tables.from_events(events, MAP | change)


def test_numbers_of_eight_digits_and_days_of_a_frame_are_dates():
    for day in ([20260105, 20260112], weeks(5, 12)):
        events = pl.DataFrame({"mother": [1, 1], "day": day, "kind": "call", "seconds": 5})
        assert pm.tables.from_events(events, MAP).log["time"].to_list() == weeks(5, 12)


def test_a_date_far_from_all_others_does_not_fill_the_memory():
    far = CALLS.drop_nulls().with_columns(day=pl.Series(["0001-01-01", *["9999-12-31"] * 2]))
    with pytest.raises(pm.InputError, match="a wrong date that is far from all others"):
        pm.tables.from_events(pl.concat([far] * 200).with_columns(mother=pl.int_range(600)), MAP)


HEAD = "mother,day,seconds\n"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("7,2026-01-05,4O\n", "calls.csv: the column 'seconds' must hold numbers, but row 2"),
        (",2026-01-05,1\n8,2026-01-06,-\n", "but row 3 holds '-'"),
        ("7,2026-01-05,1e400\n8,2026-01-05,3\n", "finite numbers, but row 2"),
        ("7,1767571200,1\n", 'seconds since 1970, write form = "unix"'),
        ("7,0000-00-00,1\n", "row 2 holds '0000-00-00'"),
        ("7,2026-01-05,40\n" + HEAD, "row 3 holds 'day'"),
    ],
)  # fmt: skip
def test_cells_that_cannot_be_read_are_named_by_file_column_and_row(tmp_path, rows, words):
    (tmp_path / "calls.csv").write_text(HEAD + rows)
    with pytest.raises(pm.InputError, match=re.escape(words)):
        pm.tables.from_events(tmp_path / "calls.csv", MAP)


def test_ids_as_they_are_copied_and_guarded(tmp_path):
    """A sign without width is no part of an id, and ="007" is the text 007."""
    ids = ("7\u200b", "7", '"=""007"""', "=1+1")
    text = "mother,day,kind,seconds\n" + "".join(f"{one},2026-01-05,call,4\n" for one in ids)
    (tmp_path / "calls.csv").write_text(text)
    made = pm.tables.from_events(tmp_path / "calls.csv", MAP)
    assert sorted(made.log["id"].unique()) == ["007", "7", "=1+1"]


def test_a_label_that_no_event_has_is_counted():
    never = {
        **MAP,
        "action": {"nothing": "none", "labels": {"call": "TRUE", "visit": "seconds > 99"}},
    }
    assert pm.tables.from_events(CALLS, never).counts.actions["visit"] == 0


def test_rows_of_a_sheet_that_begins_with_empty_rows_are_those_of_excel(tmp_path):
    with xlsxwriter.Workbook(tmp_path / "calls.xlsx") as book:
        sheet = book.add_worksheet("May")
        for row, cells in enumerate(
            [["mother", "day", "seconds"], [7, "2026-01-05", 4], [8, "x", 4]]
        ):
            sheet.write_row(row + 3, 1, cells)
    with pytest.raises(pm.InputError, match="row 6 holds 'x'"):
        pm.tables.from_events(tmp_path / "calls.xlsx", MAP)
    (tmp_path / "calls.csv").write_text("\n" + HEAD + "7,2026-01-05,4\n")
    with pytest.raises(pm.InputError, match="the first line is empty"):
        pm.tables.from_events(tmp_path / "calls.csv", MAP)


# Exports of other programs


def exported(name, tmp_path):
    """A made-up export with its map beside it."""
    shutil.copytree(EXPORTS / name, tmp_path / name)
    shutil.copy(MAPS / f"{name}.toml", tmp_path / name)
    return tmp_path / name


def test_redcap(tmp_path):
    folder = exported("redcap", tmp_path)
    made = pm.tables.from_events(folder / "data.csv", folder / "redcap.toml")
    months = [datetime.date(2026, month, 1) for month in (1, 2, 3)]
    assert made.log.rows() == [
        ("001", months[0], "Poor", "counselling", "Female", "Lower, by the river"),
        ("001", months[1], None, "none", "Female", "Lower, by the river"),
        ("001", months[2], "Fair", "call", "Female", "Lower, by the river"),
        ("002", months[1], "Good", "call", "Male", "Upper"),
    ]
    assert made.counts.dropped["not meant by keep"] == 2
    assert made.counts.dropped["without a time (contact_date)"] == 1


def test_commcare(tmp_path):
    folder = exported("commcare", tmp_path)
    made = pm.tables.from_events(folder / "forms.csv", folder / "commcare.toml")
    assert made.log.rows() == [
        ("c-10", weeks(5)[0], "at risk", "visit", 31, "Upper"),
        ("c-10", weeks(12)[0], None, "none", 31, "Upper"),
        ("c-10", weeks(19)[0], "well", "none", 31, "Upper"),
        ("c-11", weeks(5)[0], "well", "call", None, "Lower"),
    ]
    assert (made.counts.read, made.counts.used) == (6, 4)


def test_odk_and_kobo(tmp_path):
    folder = exported("odk", tmp_path)
    made = pm.tables.from_events(folder / "visits-medicine.csv", folder / "odk.toml")
    expected = [
        ("0012", weeks(5)[0], "adherent", "visit"),
        ("0013", weeks(12)[0], "missing", "call"),
    ]
    assert made.log.drop("district").rows() == expected
    assert made.counts.dropped["not meant by keep"] == 1
    visits = read_table(folder / "visits.csv").head(3).with_columns(_index=pl.int_range(1, 4))
    medicine = read_table(folder / "visits-medicine.csv").head(4)
    medicine = medicine.with_columns(
        _parent_index=pl.Series([1, 1, 2, 3]), _index=pl.int_range(1, 5)
    )
    write_sheets(folder / "export.xlsx", {"visits": visits, "medicine": medicine})
    shutil.copy(MAPS / "kobo.toml", folder)
    assert pm.tables.from_events(
        f"{folder}/export.xlsx#medicine", folder / "kobo.toml"
    ).log.rows() == expected  # fmt: skip


def test_kobo_with_the_unit_in_one_of_several_columns(tmp_path):
    """Made up, in the columns of a KoboToolbox form that asks for a well by its kind."""
    place, measured = "Main_group/location_details/", "Main_group/measurement/"
    columns = ("sw_bk_well_no", "bk_dw_no", "well_no_sw_bardiya", "well_no_dw_bardiya")
    visits = [
        ("u1", "2026-01-05", 0, "s1", 2.5, None),
        ("u1", "2026-01-05", 0, "s1", 2.6, None),
        ("u2", "2026-01-20", 0, "s1", 4.0, "wet"),
        ("u3", "2026-01-08", 3, "d9", 7.5, None),
        ("u4", "2026-01-08", 3, "d9", 1.0, "Test"),
        ("u5", "2026-01-08", None, None, 1.0, None),
    ]
    rows = [
        {"_uuid": uuid, "today": day, f"{place}well_type": "sw", f"{measured}gw_level": level,
         f"{measured}Notes": note,
         **{f"{place}{name}": well if at == kind else None for at, name in enumerate(columns)}}
        for uuid, day, kind, well, level, note in visits
    ]  # fmt: skip
    pl.DataFrame(rows, infer_schema_length=None).write_csv(tmp_path / "kobo.csv")
    made = pm.tables.from_events(tmp_path / "kobo.csv", MAPS / "wells.toml")
    assert made.log.select("id", "state", "action").rows() == [
        ("d9", "deep", "visit"),
        ("d9", "deep", "none"),
        ("s1", "shallow", "visit"),
        ("s1", "deep", "visit"),
    ]
    assert made.counts.dropped["without a person (who)"] == 1
    wrong = {**MAP, "who": "COALESCE(mother, nobody)"}
    with pytest.raises(pm.InputError, match="who uses the column 'nobody', which is missing"):
        pm.tables.from_events(CALLS, wrong)


def test_a_parent_that_is_there_twice_is_refused(tmp_path):
    folder = exported("odk", tmp_path)
    text = (folder / "visits.csv").read_text()
    (folder / "visits.csv").write_text(text + text.splitlines()[1] + "\n")
    with pytest.raises(pm.InputError, match=r"visits\.csv: KEY must be different in each row"):
        pm.tables.from_events(folder / "visits-medicine.csv", folder / "odk.toml")


def test_dhis2(tmp_path):
    folder = exported("dhis2", tmp_path)
    made = pm.tables.from_events(folder / "events.csv", folder / "dhis2.toml")
    assert made.log.drop("time").rows() == [
        ("enr00000001", "suppressed", "reminder", "oux00000001"),
        ("enr00000001", "unsuppressed", "transport", "oux00000001"),
        ("enr00000002", None, "reminder", "oux00000002"),
    ]
    assert (made.counts.read, made.counts.used) == (4, 3)


def test_the_maps_are_short_and_whole():
    for file in MAPS.glob("*.toml"):
        assert len(file.read_text().splitlines()) <= 30
        read_map(file)


def test_chicago_in_the_citys_columns(tmp_path):
    """Made up, in the columns of the city's file: the full grid, a visit of each day once."""
    inspections = [
        (1, "100", "01/15/2013", "Canvass", "Fail"),
        (2, "100", "01/15/2013", "Canvass", "Pass"),
        (3, "100", "02/20/2013", "Canvass Re-Inspection", "Pass w/ Conditions"),
        (4, "100", "11/05/2013", "Complaint", "Pass"),
        (5, "200", "08/01/2013", "Canvass", "Out of Business"),
        (6, "200", "05/01/2013", "License", "Pass"),
        (7, "0", "05/01/2013", "Canvass", "Pass"),
    ]
    header = "Inspection ID,License #,Risk,Inspection Date,Inspection Type,Results"
    lines = [
        f"{n},{who},Risk 1 (High),{day},{kind},{found}" for n, who, day, kind, found in inspections
    ]
    (tmp_path / "food.csv").write_text("\n".join([header, *lines]) + "\n")
    made = pm.tables.from_events(tmp_path / "food.csv", MAPS / "chicago.toml")
    told = made.log.select("id", "state", "action").rows()
    assert told[:4] == [
        ("100", "Pass w/ Conditions", "visit"), ("100", "Pass w/ Conditions", "none"),
        ("100", "Pass w/ Conditions", "none"), ("100", "Pass", "none"),
    ]  # fmt: skip
    assert told[4:] == [
        ("200", None, "none"), ("200", "Pass", "none"), ("200", "Pass", "none"),
        ("200", "Pass", "none"),
    ]  # fmt: skip
    assert made.counts.dropped == {
        "not meant by keep": 2, "without a person (License #)": 0,
        "without a time (Inspection Date)": 0, "repeated (License #, Inspection Date)": 1,
    }  # fmt: skip


# A first map, and the command


def test_a_proposed_map_works_and_says_what_it_rests_on():
    rng = random.Random(0)
    many = pl.DataFrame(
        {"patient_id": [rng.randrange(30) for _ in range(300)],
         "visit_date": [f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
                        for _ in range(300)],
         "visit_type": [rng.choice(["home", "it's a call"]) for _ in range(300)],
         "result\x1b": [rng.choice(["good", "bad"]) for _ in range(300)],
         "weight": [rng.gauss(60, 9) for _ in range(300)]}
    )  # fmt: skip
    text = propose_map(many, "visits.csv")
    found = tomllib.loads(text)
    assert (found["who"], found["when"], found["state"]["value"]) == (
        "patient_id", "visit_date", "result\x1b",
    )  # fmt: skip
    assert "30 different values" in text
    assert "\x1b" not in text
    made = pm.tables.from_events(many, found)
    assert made.counts.used == 300
    assert set(made.counts.actions) == {"none", "home", "it's a call"}
    numbers = propose_map(many.drop("result\x1b", "visit_type"), "visits.csv")
    assert tomllib.loads(numbers)["state"]["several"] == "max"
    assert pm.tables.from_events(many, tomllib.loads(numbers)).counts.used == 300
    flags = many.with_columns(sent=pl.Series(["yes", "no"] * 150)).drop("visit_type")
    assert tomllib.loads(propose_map(flags, "visits.csv"))["action"]["labels"] == {"sent": "sent"}
    few = many.head(3).select("patient_id", "visit_date", "weight")
    few = pl.concat([few, few])
    assert tomllib.loads(propose_map(few, "few.csv"))["state"]["value"] == "weight"
    assert 'value = "..."' in propose_map(few.drop("weight"), "few.csv")
    with pytest.raises(pm.InputError, match="a column of dates was not found"):
        propose_map(many.drop("visit_date"), "visits.csv")


def test_the_command_shows_ten_people_and_writes_the_log(tmp_path, capsys):
    CALLS.write_csv(tmp_path / "calls.csv")
    (tmp_path / "map.toml").write_text(_as_toml(MAP))
    typed = ["events", f"{tmp_path}/calls.csv", "--map", f"{tmp_path}/map.toml"]
    cli.dispatch(typed)
    printed = capsys.readouterr().out
    assert "7  from 2026-01-05: listens + visit → ? → silent" in printed
    assert "6 events read\n1 dropped: without a person (mother)\n" in printed
    assert "nothing was written: add --out" in printed
    cli.dispatch([*typed, "--out", f"{tmp_path}/log.csv", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["read"] == facts["used"] + sum(facts["dropped"].values()) == 6
    assert read_table(tmp_path / "log.csv").height == facts["rows"] == 6
    with pytest.raises(pm.InputError, match="exists already"):
        cli.dispatch([*typed, "--propose"])
    cli.dispatch([*typed[:-1], f"{tmp_path}/new.toml", "--propose"])
    assert "check every line" in capsys.readouterr().out
    assert read_map(tmp_path / "new.toml")[0].who == "mother"


def test_a_guess_is_said_on_the_screen(tmp_path, capsys):
    calls = CALLS.drop_nulls().with_columns(kind=pl.lit("réunion"))
    (tmp_path / "calls.csv").write_bytes(calls.write_csv().encode("cp1252"))
    (tmp_path / "map.toml").write_text(_as_toml(MAP))
    cli.dispatch(["events", f"{tmp_path}/calls.csv", "--map", f"{tmp_path}/map.toml"])
    assert "calls.csv: its text is read as cp1252, with words such as 'réunion'" in (
        capsys.readouterr().err
    )


def test_a_damaged_letter_is_said(tmp_path):
    text = "id,name\n" + "1,Zoë\n" * 9 + "2,Ren"
    (tmp_path / "a.csv").write_bytes(text.encode() + b"\xe9\n")
    with pytest.warns(InputWarning, match="1 of its characters, the first in line 11"):
        assert read_table(tmp_path / "a.csv")["name"][-1] == "Ren�"


# Pseudonyms


def test_pseudonyms_hide_ids_and_keep_people_apart(tmp_path, capsys):
    CALLS.write_csv(tmp_path / "calls.csv")
    (tmp_path / "map.toml").write_text(_as_toml(MAP))
    typed = ["events", f"{tmp_path}/calls.csv", "--map", f"{tmp_path}/map.toml"]
    logs = []
    for name in ("one.csv", "two.csv"):
        cli.dispatch([*typed, "--out", f"{tmp_path}/{name}", "--pseudonymise", f"{tmp_path}/key"])
        logs.append(read_table(tmp_path / name))
    assert "a new key was written" in capsys.readouterr().err
    assert logs[0].equals(logs[1])
    assert logs[0]["id"].n_unique() == 2
    assert not set(logs[0]["id"]) & {"7", "8", 7, 8}
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    other = pseudonyms(pl.Series(["7"]), b"another key of some length")
    assert other[0] not in set(logs[0]["id"])


def test_a_list_with_pseudonyms_leaves_free_text_behind(tmp_path, capsys):
    people = pl.DataFrame(
        {"id": ["007", "008", "009"], "state": ["motivated"] * 3, "feature_0": [0.1, 0.2, 0.3],
         "name": ["Ana", "Bea", "Cleo"], "phone": [5550001, 5550002, 5550003],
         "region": ["north"] * 3, "note": ["a", "b", "c"]}
    )  # fmt: skip
    pm.tables.write_table(people, tmp_path / "people.xlsx")
    typed = PlanCommand(
        "armman", f"{tmp_path}/people.xlsx", 1.0, tmp_path / "list.csv",
        pseudonymise=tmp_path / "key", keep_text=("note",),
        rules=dataclasses.replace(no_rules(), exclude_ids=("008",)),  # type: ignore[type-var]
    )  # fmt: skip
    key, _ = read_key(tmp_path / "key")
    rules = hide_ids(typed.rules.rules(), key)
    assert rules.exclude_ids == tuple(pseudonyms(pl.Series(["008"]), key))
    unused = unused_columns(pm.load("armman"), rules, people.columns)
    hidden = hide_people(people, "people.xlsx", key, unused, typed.keep_text)
    assert hidden.columns == ["id", "state", "feature_0", "region", "note"]
    assert "may identify people: name, phone" in capsys.readouterr().err
    assert not set(hidden["id"]) & set(people["id"])
    folder = dataclasses.replace(typed, arms=str(tmp_path))
    with pytest.raises(pm.InputError, match="needs a table, but this is a folder"):
        folder.run()


def test_a_programme_with_pseudonyms_never_holds_an_id(tmp_path, capsys):
    file, key = f"{tmp_path}/calls.db", f"{tmp_path}/key"
    ids = ["anna-1971", "bela-1980", "caro-1990"]
    people = pl.DataFrame({"id": ids, "state": ["motivated"] * 3, "note": ["x1", "y2", "z3"]})
    people = people.with_columns(pl.lit(0.1).alias(f"feature_{place}") for place in range(6))
    for name, table in {
        "people": people.with_columns(telephone=pl.Series([5550001, 5550002, 5550003])),
        "seen": people.select("id", state=pl.lit("persuadable")),
        "done": pl.DataFrame({"id": ids[2:], "action": ["call"], "why": ["she called us"]}),
    }.items():
        table.write_csv(tmp_path / f"{name}.csv")

    def run(action, *typed, key=key):
        more = [] if key is None else ["--pseudonymise", key]
        cli.dispatch(["programme", action, file, *typed, *more])

    run("begin", "--model", "armman", key=None)
    run("join", f"{tmp_path}/people.csv", "--keep-text", "note")
    assert "may identify people: telephone" in capsys.readouterr().err
    run("observe", f"{tmp_path}/seen.csv")
    run("plan", "--budget", "1", "--out", f"{tmp_path}/list.csv", "--exclude-ids", ids[1])
    run("record", f"{tmp_path}/done.csv")
    run("leave", "--ids", ids[2])
    assert "1 person left; 2 take part" in capsys.readouterr().out
    with pm.Programme.open(file) as programme:
        hidden = pseudonyms(pl.Series(ids), read_key(tmp_path / "key")[0])
        assert programme.history().people["id"].to_list() == hidden.to_list()
        assert programme.history().actions["id"].to_list() == hidden[2:].to_list()
        assert "she called us" in programme.deviations(1)["why"].to_list()
    held = (tmp_path / "calls.db").read_bytes() + (tmp_path / "list.csv").read_bytes()
    assert b"x1" in held
    assert not any(one.encode() in held for one in [*ids, "5550001"])

    (tmp_path / "other").write_text("another key of some length")
    for wrong, said in ((None, "with the file of their key"), ("other", "made with another key"),
                        ("new", "expected the key of the programme's ids")):  # fmt: skip
        with pytest.raises(pm.InputError, match=said):
            run("observe", f"{tmp_path}/seen.csv", key=wrong and f"{tmp_path}/{wrong}")
    assert not (tmp_path / "new").exists()
    run("plan", "--budget", "1", "--out", f"{tmp_path}/list.csv", key=None)
    with pm.Programme(f"{tmp_path}/plain.db", pm.load("armman")) as plain:
        plain.keep_place("armman")
        plain.join(people)
    file = f"{tmp_path}/plain.db"
    with pytest.raises(pm.InputError, match="are not pseudonyms"):
        run("observe", f"{tmp_path}/seen.csv")


def test_a_key_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "key").write_text("secret")
    with pytest.raises(pm.InputError, match="at least 16 bytes, not 6"):
        read_key(tmp_path / "key")


def test_a_log_of_events_can_be_read_as_a_log(tmp_path):
    rng = random.Random(1)
    start = datetime.date(2026, 1, 5)
    events = pl.DataFrame(
        [(f"p{p}", start + datetime.timedelta(days=7 * w), rng.choice(["call", "sms"]),
          rng.randrange(60)) for p in range(9) for w in range(6)],
        ["mother", "day", "kind", "seconds"], orient="row",
    )  # fmt: skip
    pm.tables.write_table(pm.tables.from_events(events, MAP).log, tmp_path / "log.csv")
    log = read_log(tmp_path / "log.csv", passive="none", rewards={"listens": 1, "silent": 0})
    assert (log.found.people, log.found.rounds, log.found.unit) == (9, 6, "week")
