"""Checks docs/reading.md and the README's table against the data of the report.

Each paragraph, table and list of the page is followed by a comment that gives the source of its
figures, one in each line:

    <!-- figures
    98.9 % = percent min estimate in claims: claim~Zero-shot; measured~`paper`
    holds = verdict in claims: claim~Robust
    given: 30 70
    until samples: 5,550 8,025
    -->

A line has the figure as it is printed; how it is computed (`min`, `max`, `mean`, `sum` or `only` of
a field, `count`, or `verdict`; `percent` before it multiplies by 100, `minus` by -1); a list of
docs/paper/cells.json, or `departures` (studies/data); and conditions: `=` equals, `~` contains, `>`
is more than another field, and `|` between values means "or".
`given` has numbers that are settings, not results. `until X` has figures that wait for X, a list of
the data or a file; once X exists, they have to be read from it. Every number of a paragraph must be
in its comment.

`python -m studies.reading` prints what does not agree. With `--write` it replaces the figures; a
person has to read the sentences again.
"""

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studies.departures import DATA as DEPARTURES
from studies.departures_page import as_rows

PAGE, README, DATA = Path("docs/reading.md"), Path("README.md"), Path("docs/paper/cells.json")
README_ROWS = {
    "Synthetic, 21 arms, budget 7": ("table13", "N = 21, B = 7, 100 %"),
    "Synthetic, 96 arms, budget 32": ("table13", "N = 96, B = 32, 100 %"),
    "ARMMAN, 25 arms, budget 7": ("table15", "ARMMAN, N = 25, B = 7, 100 %"),
    "ARMMAN, 50 arms, budget 10": ("table15", "ARMMAN, N = 50, B = 10, 100 %"),
    "SIS 150, 20 arms, budget 16": ("table14", "SIS, N = 20, B = 16, S = 150, 100 %"),
    "Continuous Synthetic, 21 arms, budget 7": (
        "table6", "Continuous Synthetic, N = 21, B = 7, 100 %",
    ),
    "Continuous SIS, 20 arms, budget 16": ("table6", "Continuous SIS, N = 20, B = 16, 100 %"),
}  # fmt: skip
"""The table and the cell of the report for each row of the README's table."""

SETS_OF_ARMS = 8
"""Number of sets of arms on which DDLPO is trained: one for each seed of the report."""

COMMENT = re.compile(
    r"(?P<text>(?:^(?!<!--|#).+\n)+)\n?<!-- figures\n(?P<lines>[\s\S]*?)-->", re.MULTILINE
)
BLOCK = re.compile(r"<!--[\s\S]*?-->\n?|(?:^.+\n?)+", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")


@dataclasses.dataclass(frozen=True)
class Line:
    """A figure as printed, and how it is computed."""

    printed: str
    how: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A paragraph with its figures, the numbers that are settings, and those that wait for data."""

    text: str
    lines: tuple[Line, ...]
    given: tuple[str, ...]
    waiting: tuple[tuple[str, str], ...]


def read_notes(page: str) -> list[Note]:
    """Every paragraph that has a comment."""
    return [_note(found["text"], found["lines"]) for found in COMMENT.finditer(page)]


def _note(text: str, lines: str) -> Note:
    figures, given, waiting = [], [], []
    for line in filter(None, map(str.strip, lines.splitlines())):
        if line.startswith("given:"):
            given += line.removeprefix("given:").split()
        elif line.startswith("until "):
            what, _, numbers = line.removeprefix("until ").partition(":")
            waiting += [(what, number) for number in numbers.split()]
        else:
            printed, _, how = line.partition(" = ")
            figures.append(Line(printed, how))
    return Note(text, tuple(figures), tuple(given), tuple(waiting))


def bare_paragraphs(page: str) -> list[str]:
    """Paragraphs with numbers or a verdict that have no comment."""
    rest = COMMENT.sub("", page)
    blocks = [found[0] for found in BLOCK.finditer(rest)]
    return [block for block in blocks if not block.startswith(("#", "<!--")) and _numbers(block)]


def _numbers(text: str) -> list[str]:
    return NUMBER.findall(CODE.sub("", text))


def problems(page: str, data: dict[str, Any], root: Path = Path()) -> Iterator[str]:
    """Disagreements between the page and the data, one sentence each."""
    yield from (f"no figures are named for: {text[:70]!r}" for text in bare_paragraphs(page))
    for note in read_notes(page):
        named = {number for line in note.lines for number in NUMBER.findall(line.printed)}
        named |= {*note.given, *(number for _, number in note.waiting)}
        for number in _numbers(note.text):
            if number not in named:
                yield f"{number} is not accounted for in: {note.text[:70]!r}"
        for line in note.lines:
            now = printed_like(line.printed, worked_out(line.how, data))
            if line.printed not in note.text:
                yield f"{line.printed!r} does not stand in: {note.text[:70]!r}"
            elif now != line.printed:
                yield f"{line.printed!r} is now {now!r} ({line.how})"
        for what in dict.fromkeys(what for what, _ in note.waiting):
            if what in data or (root / what).exists():
                yield f"{what} is there: read the figures from it in: {note.text[:70]!r}"


def load_data(root: Path = Path()) -> dict[str, Any]:
    """The report's data and the effects of departures from the paper. Cells of DDLPO also have the
    distance below the published figure (`below`) and the spread between sets of arms (`spread`)."""
    data = json.loads((root / DATA).read_text())
    for cell in data["cells"]:
        if cell["policy"] == "ddlpo":
            cell["below"] = cell["corrected"] - cell["mean"]
            cell["spread"] = cell["stderr"] * math.sqrt(SETS_OF_ARMS)
    return data | {"departures": as_rows(root / DEPARTURES)}


def worked_out(how: str, data: dict[str, Any]) -> float | str:
    """The value of an instruction such as `percent min of_informed in cells: recipe=paper`.

    >>> from studies.reading import worked_out
    >>> worked_out("percent max x in rows: who=a|b", {"rows": [{"x": 0.5, "who": "b"}]})
    50.0
    """
    words, _, rest = how.partition(" in ")
    name, _, conditions = rest.partition(":")
    rows = [row for row in data[name.strip()] if _fits(row, conditions)]
    if words == "count":
        return float(len(rows))
    if words == "verdict":
        return _verdict(rows)
    *scale, what, field = words.split()
    values = [row[field] for row in rows if row.get(field) is not None]
    if not values or (what == "only" and len(values) != 1):
        raise ValueError(f"{how}: {len(values)} values")
    value = {"min": min, "max": max, "only": max, "mean": _mean, "sum": sum}[what](values)
    return {"percent": 100, "minus": -1}[scale[0]] * value if scale else value


def printed_like(printed: str, value: float | str) -> str:
    """A value with as many digits as a printed figure, and with the same words around it."""
    number = NUMBER.search(printed)
    if isinstance(value, str) or number is None:
        return str(value)
    decimals = len(number[0].partition(".")[2])
    text = f"{value:,.{decimals}f}" if "," in number[0] else f"{value:.{decimals}f}"
    return printed[: number.start()] + text + printed[number.end() :]


def with_new_figures(page: str, data: dict[str, Any]) -> str:
    """The page with all figures replaced by those of the data, in paragraphs and comments. If a
    paragraph prints a figure twice, its lines apply in the order of the text."""

    def renewed(found: re.Match[str]) -> str:
        text, lines, whole, at = found["text"], found["lines"], found[0], 0
        for line in _note(text, lines).lines:
            now = printed_like(line.printed, worked_out(line.how, data))
            exact = re.compile(rf"(?<![\w.]){re.escape(line.printed)}(?![\w.]*\d)")
            if place := exact.search(text, at):
                text = text[: place.start()] + now + text[place.end() :]
                at = place.start() + len(now)
            lines = lines.replace(f"{line.printed} = {line.how}\n", f"{now} = {line.how}\n")
        return whole.replace(found["text"], text, 1).replace(found["lines"], lines, 1)

    return COMMENT.sub(renewed, page)


def readme_rows(data: dict[str, Any]) -> dict[str, str]:
    """The rows of the README's table, made from the data, by their first cell."""
    rows = {}
    for title, (table, cell) in README_ROWS.items():
        at = {row["recipe"]: row for row in data["cells"]
              if (row["table"], row["cell"]) == (table, cell)}  # fmt: skip
        ours = [at[name] for name in ("paper", "sweep", "exact")]
        texts = [f"{row['mean']:.2f} ({row['of_bound']:.1%})" for row in ours]
        ends = f"{ours[0]['published']:.2f}", f"{ours[0]['bound']:.2f}"
        rows[title] = f"| {' | '.join([title, ends[0], *texts, ends[1]])} |"
    return rows


def with_new_rows(readme: str, data: dict[str, Any]) -> str:
    """The README with the rows of its table made from the data."""
    for title, row in readme_rows(data).items():
        readme = re.sub(
            rf"^\| {re.escape(title)} \|.*$", lambda _, new=row: new, readme, flags=re.M
        )
    return readme


def _fits(row: dict[str, Any], conditions: str) -> bool:
    for condition in filter(None, map(str.strip, conditions.split(";"))):
        found = re.match(r"(\w+)([=~>])(.*)", condition)
        if found is None:
            raise ValueError(f"{condition!r} is not a condition such as recipe=paper")
        field, sign, wanted = found.groups()
        if sign == ">":
            fits = row[field] > row[wanted]
        else:
            choices, own = wanted.split("|"), str(row.get(field))
            fits = own in choices if sign == "=" else any(it in own for it in choices)
        if not fits:
            return False
    return True


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _verdict(rows: list[dict[str, Any]]) -> str:
    """The verdict of all rows, or `mixed`."""
    verdicts = {row["verdict"] for row in rows}
    return verdicts.pop() if len(verdicts) == 1 else "mixed" if verdicts else "not tested"


def main() -> None:
    """Checks the page, or writes new figures into it."""
    parser = argparse.ArgumentParser(
        description="Compares docs/reading.md with docs/paper/cells.json."
    )
    parser.add_argument("--write", action="store_true", help="replace the figures")
    options = parser.parse_args()
    page, data = PAGE.read_text(), load_data()
    if options.write:
        page = with_new_figures(page, data)
        PAGE.write_text(page)
        README.write_text(with_new_rows(README.read_text(), data))
    found = list(problems(page, data))
    if with_new_rows(README.read_text(), data) != README.read_text():
        found.append("the table of README.md does not agree with the data")
    print("\n".join(found) or "Every figure is in the data.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
