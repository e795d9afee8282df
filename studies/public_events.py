"""Public files of events, from the raw file to a report. The counts are checked by a plain loop.

    python -m studies.public_events chicago Food_Inspections.csv --out runs/chicago
    python -m studies.public_events heartsteps HeartStepsV1/data_files --out runs/heartsteps
    python -m studies.public_events wells Kobo_data_latest.csv --out runs/wells
    python -m studies.public_events appointments multilevel-model-1 --out runs/appointments

The files are not part of this repository: the first is the export of Chicago's food inspections
from the city's data portal, the second a folder with suggestions.csv and users.csv of HeartSteps V1
(Klasnja et al. 2019), the third what the API of KoboToolbox gave for the form of a groundwater
project in Nepal (the repository csisarep/groundwater_dashboard, commit b804305), the fourth a
folder with data.csv and dictionary.csv of a made-up REDCap project (inst/test-data/projects of the
R package REDCapR). The maps are in examples/maps.
"""

import argparse
import csv
import datetime
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import prefermab as pm

MAPS = Path(__file__).parents[1] / "examples" / "maps"


class Count(NamedTuple):
    """The counts that a plain loop over a file finds."""

    used: int
    rows: int
    actions: dict[str, int]


class Source(NamedTuple):
    """A public file: the file of its events, the loop that counts them, and rewards of states."""

    events: str
    by_hand: Callable[[Path], Count]
    rewards: dict[str, float]


def records(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file, read by the standard library."""
    with file.open(encoding="utf-8", errors="replace", newline="") as opened:
        yield from csv.DictReader(opened)


def count_chicago(file: Path) -> Count:
    """Visits by place and quarter: the last record of a day counts."""
    known = {"Pass", "Pass w/ Conditions", "Fail"}
    by_day = {
        (row["License #"], row["Inspection Date"]): row["Inspection Type"]
        for row in records(file)
        if row["Results"] in known and row["License #"] and float(row["License #"]) > 0
    }
    visited: dict[tuple[str, int], bool] = defaultdict(bool)
    for (place, day), kind in by_day.items():
        when = datetime.datetime.strptime(day, "%m/%d/%Y")
        visited[place, when.year * 4 + (when.month - 1) // 3] |= kind.startswith("Canvass")
    quarters = [quarter for _, quarter in visited]
    places = {place for place, _ in visited}
    rows = len(places) * (max(quarters) - min(quarters) + 1)
    visits = sum(visited.values())
    return Count(len(by_day), rows, {"none": rows - visits, "visit": visits})


def count_heartsteps(folder: Path) -> Count:
    """Moments by person, with an additional row after the last moment of each person."""
    sent = {"TRUE": "suggestion", "FALSE": "none", "True": "suggestion", "False": "none"}
    moments: dict[str, set[int]] = defaultdict(set)
    actions: Counter[str] = Counter()
    used = 0
    for row in records(folder / "suggestions.csv"):
        if row["decision.index.nogap"]:
            used += 1
            moments[row["user.index"]].add(int(float(row["decision.index.nogap"])))
            actions[sent.get(row["send"], "unknown")] += 1
    rows = sum(max(when) - min(when) + 2 for when in moments.values())
    inside = sum(max(when) - min(when) + 1 - len(when) for when in moments.values())
    actions["none"] += inside
    actions["unknown"] += len(moments)
    return Count(used, rows, dict(actions))


def count_wells(file: Path) -> Count:
    """Visits to wells by fortnight; the name of a well is in one of four columns."""
    place = "Main_group/location_details/"
    names = [place + n for n in ("sw_bk_well_no", "bk_dw_no", "well_no_sw_bardiya",
                                 "well_no_dw_bardiya")]  # fmt: skip
    kept = {
        row["_uuid"]: (next(row[n] for n in names if row[n]), row["today"])
        for row in records(file)
        if row["Main_group/measurement/Notes"] != "Test"
    }
    days = {day: datetime.date.fromisoformat(day).toordinal() for _, day in kept.values()}
    monday = min(days.values()) - (min(days.values()) - 1) % 7
    visited = {(well, (days[day] - monday) // 14) for well, day in kept.values()}
    wells, rounds = {well for well, _ in visited}, {when for _, when in visited}
    rows = len(wells) * (max(rounds) - min(rounds) + 1)
    return Count(len(kept), rows, {"none": rows - len(visited), "visit": len(visited)})


def count_appointments(folder: Path) -> Count:
    """Appointments of patients by half-year, from the first to the last of each patient."""
    visits: dict[str, list[int]] = defaultdict(list)
    for row in records(folder / "data.csv"):
        if row["redcap_repeat_instrument"] == "appointment":
            year, month, _ = row["date_at_visit"].split("-")
            visits[row["patient_id"]].append(int(year) * 2 + (int(month) > 6))
    rows = sum(max(when) - min(when) + 1 for when in visits.values())
    seen = sum(len(set(when)) for when in visits.values())
    used = sum(len(when) for when in visits.values())
    return Count(used, rows, {"none": rows - seen, "visit": seen})


SOURCES = {
    "chicago": Source("", count_chicago, {"Pass": 1.0, "Pass w/ Conditions": 0.5, "Fail": 0.0}),
    "heartsteps": Source("suggestions.csv", count_heartsteps, {"walks": 1.0, "sits": 0.0}),
    "wells": Source("", count_wells, {"shallow": 1.0, "deep": 0.0}),
    "appointments": Source("data.csv", count_appointments, {"well": 1.0, "poorly": 0.0}),
}


def make_log(name: str, place: Path) -> tuple[pm.tables.EventLog, Count]:
    """The log made by the map, and the counts of the plain loop; raises an error if they differ."""
    source = SOURCES[name]
    counted = source.by_hand(place)
    with tempfile.TemporaryDirectory() as folder:
        # The tables that a map names must be in the folder of the map.
        for table in place.glob("*.csv") if place.is_dir() else ():
            shutil.copy(table, folder)
        shutil.copy(MAPS / f"{name}.toml", folder)
        events = place / source.events if source.events else place
        made = pm.tables.from_events(events, Path(folder) / f"{name}.toml")
    found = Count(made.counts.used, made.counts.rows, made.counts.actions)
    if found != counted:
        raise SystemExit(f"{name}: the map gives {found}, a plain count {counted}.")
    return made, counted


def main() -> None:
    """Makes the log, checks its counts, learns from it and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SOURCES)
    parser.add_argument("place", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    typed = parser.parse_args()
    made, counted = make_log(typed.name, typed.place)
    print(f"{counted.used:,} events, {counted.rows:,} rows, {counted.actions}: counted twice")
    typed.out.mkdir(parents=True, exist_ok=True)
    pm.tables.write_table(made.log, typed.out / "log.csv")
    result = pm.learn(
        typed.out / "log.csv",
        passive="none",
        rewards=SOURCES[typed.name].rewards,
        steps=typed.steps,
    )
    result.report(typed.out / "report")
    print(f"{result.verdict}: {typed.out / 'report' / 'index.html'}")


if __name__ == "__main__":
    main()
