"""The command `programme status`, and functions that the commands of a programme share: opening it,
reading its key and tables of its people, and printing what happened."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from prefermab.cli.options import JsonFlag, hide_people, load_key
from prefermab.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from prefermab.programme.store import Programme

ProgrammeFile = Annotated[
    Positional[str],
    arg(metavar="FILE", help="File of the programme, such as calls.db, or its database address."),
]
COUNT_COLUMNS = ("changed", "corrected")
"""Numbers of people who were not treated as planned, and of corrections; None if unknown."""


@dataclasses.dataclass(frozen=True)
class StatusCommand:
    """Show the current round, participants and past spending."""

    file: ProgrammeFile
    json: JsonFlag = False

    def run(self) -> None:
        """Prints the past rounds and the current one."""
        import polars as pl

        from prefermab.programme.tables.table import format_people

        with open_programme(self.file) as programme:
            rounds, now, roster = planned_rounds(programme), programme.round, programme.roster()
            changes, last = model_changes(programme), programme.last_round
        planned = rounds.filter(pl.col("round") == now).height > 0
        past = rounds.filter(pl.col("round") < now)
        unseen = count_unseen(roster)
        if self.json:
            facts = {"round": now, "planned": planned, "people": roster.height, "unseen": unseen}
            changed = [{"round": round, "model": model} for round, model in changes]
            facts |= {"model_changes": changed, **old_states(roster), "last_round": last}
            print(json.dumps({**facts, "past": past.to_dicts()}, indent=2))
            return
        if past.height:
            print_past(past)
        end = "" if last is None else f" of {last}"
        print(
            f"current round: {now}{end}, {'planned' if planned else 'not planned yet'}; "
            f"{format_people(roster.height)} take part, {unseen:,} of them not observed in this "
            "round"
        )
        for round, model in changes:
            print(f"from round {round} on, plans use another model, {model[:12]}")


def open_programme(file: str) -> "Programme":
    """The programme in a file, with its model."""
    from prefermab.programme.store import Programme

    return Programme.open(file)


def read_programme_table(
    programme: "Programme", path: str, keyfile: Path | None, keep_text: Sequence[str] | None
) -> "pl.DataFrame":
    """Reads a table. Its ids become text if the programme's ids are text, or pseudonyms if there is
    a key: then free text is left out, except the columns of `keep_text` (None keeps all)."""
    import polars as pl

    from prefermab.models.model import Model
    from prefermab.programme.planning.rules import Rules
    from prefermab.programme.planning.rules.limits import unused_columns
    from prefermab.programme.tables.columns import column
    from prefermab.programme.tables.table import read_table, source_of

    table, key = read_table(path), programme_key(programme, keyfile)
    if not table.height:
        return table
    ids = column(table, "id", source_of(path))
    if key is not None:
        assert isinstance(programme.model, Model)
        unused = unused_columns(programme.model, Rules(), table.columns)
        keep = table.columns if keep_text is None else keep_text
        return hide_people(table, source_of(path), key, unused, keep)
    if programme.ids == "text" and ids.dtype.is_integer():
        table = table.with_columns(ids.cast(pl.String))
    return table


def programme_key(programme: "Programme", keyfile: Path | None) -> bytes | None:
    """The key of the programme's pseudonyms; raises an error if it is missing or another one."""
    from prefermab.programme.tables.privacy import key_mark

    if keyfile is None and programme.ids is None:
        return None
    if keyfile is not None and programme.ids is not None and not keyfile.exists():
        raise InputError(
            f"{keyfile}: there is no such file; expected the key of the programme's ids."
        )
    key = None if keyfile is None else load_key(keyfile)
    programme.check_key(None if key is None else key_mark(key))
    return key


def parse_id(text: str) -> int:
    """A typed id as a number, for a programme whose ids are whole numbers."""
    try:
        return int(text)
    except ValueError:
        raise InputError(f"leave: ids are whole numbers in this programme, not '{text}'.") from None


def planned_rounds(programme: "Programme") -> "pl.DataFrame":
    """Budget and record of each round that was planned."""
    import polars as pl

    plans = programme.plans().filter(pl.col("status") != "superseded")
    names = ("round", "budget", "spent", "acted_on", "reached", "changed", "corrected", "closed")
    return plans.select(names)


def count_unseen(roster: "pl.DataFrame") -> int:
    """Number of participants without a state in this round."""
    from prefermab.programme.planning.roster import SINCE_SEEN

    return int((roster[SINCE_SEEN] > 0).fill_null(True).sum())


def print_past(past: "pl.DataFrame") -> None:
    """Prints the past rounds. If some actions of the last one reached nobody, also prints how many
    reached somebody."""
    from rich.console import Console

    from prefermab.cli.terminal import plain_table
    from prefermab.programme.tables.table import format_number

    table = plain_table(*(name.replace("_", " ") for name in past.drop("reached").columns))
    for row in past.iter_rows(named=True):
        table.add_row(
            str(row["round"]), format_number(row["budget"]), format_number(row["spent"]),
            f"{row['acted_on']:,}",
            *("?" if row[name] is None else f"{row[name]:,}" for name in COUNT_COLUMNS),
            row["closed"],
        )  # fmt: skip
    Console().print(table)
    last = past.row(-1, named=True)
    if last["reached"] != last["acted_on"]:
        one = last["acted_on"] == 1
        tried = "1 action was" if one else f"{last['acted_on']:,} actions were"
        print(f"round {last['round']}: {tried} tried, {last['reached']:,} of them reached somebody")


def old_states(people: "pl.DataFrame") -> dict[str, int]:
    """How many people have a state of an earlier round, and how many rounds ago the oldest is."""
    from prefermab.programme.planning.roster import SINCE_SEEN

    since = people[SINCE_SEEN].drop_nulls()
    oldest = int(since.max() or 0)  # type: ignore[arg-type]
    return {"states_from_earlier": int((since > 0).sum()), "oldest_state": oldest}


def print_skipped(table: "pl.DataFrame", roster: "pl.DataFrame", where: str) -> None:
    """Names the people of a table who do not take part."""
    from prefermab.errors import list_names
    from prefermab.programme.tables.columns import column
    from prefermab.programme.tables.table import format_people

    if not table.height:
        return
    ids = column(table, "id", where)
    skipped = ids.filter(~ids.is_in(roster["id"].cast(ids.dtype, strict=False).implode()))
    if len(skipped):
        print(
            f"{format_people(len(skipped))} skipped, not in the programme: "
            f"{list_names(map(str, skipped))}"
        )


def deviations_text(deviations: "pl.DataFrame", passive: str) -> str:
    """How the record differs from the plan, in a sentence."""
    import polars as pl

    from prefermab.errors import list_names

    omitted, added = pl.col("done") == passive, pl.col("planned") == passive
    counts = {
        "on the list not acted on": omitted,
        "acted on who were not on it": added,
        "with another action": ~omitted & ~added,
    }
    found = {what: deviations.filter(which) for what, which in counts.items()}
    text = ", ".join(f"{rows.height:,} {what}" for what, rows in found.items() if rows.height)
    barred = deviations.filter(~omitted & ~pl.col("allowed"))["id"]
    if len(barred):
        text += (
            f"; acted on although opted out, excluded or in cooldown: "
            f"{list_names(map(str, barred))}"
        )
    return f"not as planned: {text}"


def model_changes(programme: "Programme") -> list[tuple[int, str]]:
    """The rounds in which the programme changed to another model, with the hash of that model."""
    plans = programme.plans()
    used = [*zip(plans["round"], plans["model"], strict=True), (programme.round, programme.hash)]
    pairs = itertools.pairwise(used)
    return [(round, model) for (_, before), (round, model) in pairs if model != before]
