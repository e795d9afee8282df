"""Every figure of docs/reading.md and of the README's table is read out of the report's data."""

import json
from pathlib import Path

import pytest

from studies import departures_page, reading

ROOT = Path(__file__).parents[2]
DATA = {
    "cells": [
        {"recipe": "paper", "of_informed": 0.961, "cell": "a, 30 %", "mean": 4.0, "corrected": 4.1},
        {"recipe": "paper", "of_informed": 0.999, "cell": "b", "mean": 4.2, "corrected": 4.1},
        {"recipe": "sweep", "of_informed": None, "cell": "b", "mean": 5550.0, "corrected": 1.0},
    ],
    "claims": [{"claim": "Robust", "verdict": "holds"}, {"claim": "Open", "verdict": "open"}],
}
PAGE = """# Title

It keeps 96.1 to 99.9 % at 30 % and **holds**.

<!-- figures
96.1 = percent min of_informed in cells: recipe=paper
99.9 = percent max of_informed in cells: recipe=paper
holds = verdict in claims: claim~Rob
given: 30
-->
"""


def told(page, data=DATA):
    return list(reading.problems(page, data))


def test_the_page_says_what_the_data_say():
    data = reading.load_data(ROOT)
    page = (ROOT / reading.PAGE).read_text()
    assert list(reading.problems(page, data, ROOT)) == []
    # Paragraphs that nothing is read for would pass as well: there is one note for each.
    assert len(reading.read_notes(page)) >= 12
    assert sum(len(note.lines) for note in reading.read_notes(page)) > 60


def test_the_table_of_the_readme_is_what_the_data_have():
    data = json.loads((ROOT / reading.DATA).read_text())
    readme = (ROOT / reading.README).read_text()
    for row in reading.readme_rows(data).values():
        assert f"{row}\n" in readme
    shown = [*reading.README_ROWS.values()]
    own = [c for c in data["cells"] if c["recipe"] in ("paper", "sweep", "exact")]
    errors = [c["stderr"] for c in own if (c["table"], c["cell"]) in shown]
    assert f"standard errors {max(errors):.2f} at most" in readme


def test_the_table_of_departures_has_the_effects_that_were_measured():
    text = (ROOT / departures_page.DECISIONS).read_text()
    assert departures_page.with_effects(text, ROOT / departures_page.DATA) == text
    table = text[text.index(departures_page.HEAD) :].split("\n\n")[0].split("\n")
    assert all(line.strip("|").split("|")[-1].strip() for line in table)
    assert sum("0." in line.split("|")[-2] for line in table) >= 17
    worse = text.replace("**-1.31**", "-0.31")
    assert departures_page.with_effects(worse, ROOT / departures_page.DATA) == text


def test_a_page_that_agrees():
    assert told(PAGE) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("96.1", "96.2", "'96.2' is now '96.1'"),
        ("at 30 %", "at 30 or 40 %", "40 is not accounted for"),
        ("claim~Rob", "claim~Open", "'holds' is now 'open'"),
        ("It keeps 96.1 to", "It keeps at most", "'96.1' does not stand in"),
        ("# Title\n", "# Title\n\nA bare 7.\n", "no figures are named for: 'A bare 7."),
        ("given: 30", "until claims: 30", "claims is there"),
    ],
)
def test_what_does_not_agree_is_told(old, new, said):
    assert any(said in sentence for sentence in told(PAGE.replace(old, new)))


def test_figures_may_wait_for_data_that_are_not_there_yet():
    assert told(PAGE.replace("given: 30", "until samples: 30")) == []


def test_new_figures_are_put_in_with_as_many_digits():
    data = json.loads(json.dumps(DATA))
    data["cells"][0]["of_informed"] = 0.9749
    page = reading.with_new_figures(PAGE, data)
    assert "It keeps 97.5 to 99.9 %" in page
    assert told(page, data) == []
    assert reading.printed_like("5,550", 8025.4) == "8,025"


def test_a_figure_that_is_printed_twice_may_become_two():
    page = "It is 4.0 and 4.0.\n\n<!-- figures\n"
    page += "4.0 = max mean in cells: cell=b; recipe=paper\n"
    page += "4.0 = min mean in cells: cell~30 %\n-->\n"
    assert "It is 4.2 and 4.0." in reading.with_new_figures(page, DATA)


def test_counts_conditions_and_mistakes():
    assert reading.worked_out("count in cells: recipe=paper; mean>corrected", DATA) == 1
    assert reading.worked_out("count in cells: cell~30 %|b", DATA) == 3
    assert reading.worked_out("mean mean in cells: recipe=paper", DATA) == pytest.approx(4.1)
    with pytest.raises(ValueError, match="2 values"):
        reading.worked_out("only mean in cells: recipe=paper", DATA)
    with pytest.raises(ValueError, match="is not a condition"):
        reading.worked_out("count in cells: recipe", DATA)
