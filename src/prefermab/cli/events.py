"""The command `events`: makes a log from visits, calls or forms. A map describes their columns."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from prefermab.cli.options import Flag, JsonFlag, KeyFile, TableFile, load_key, option
from prefermab.errors import InputError, visible

if TYPE_CHECKING:
    from prefermab.programme.events.convert import EventLog


@dataclasses.dataclass(frozen=True)
class EventsCommand:
    """Make a log from visits, calls or forms.

    A map file says what the columns mean. The command prints a preview of ten people, and how many
    events were used and dropped.
    """

    file: Annotated[TableFile, arg(metavar="FILE")]
    """Table with a row for each event: a text file, Excel, Parquet or database."""
    map: Path
    """Map file (TOML) that says what the columns mean."""
    out: Annotated[Path | None, option("FILE")] = None
    """File to write the log to (.csv, .parquet or .xlsx). Default: only a preview."""
    propose: Flag = False
    """Only write a first map to --map; its guesses have to be checked."""
    pseudonymise: KeyFile = None
    json: JsonFlag = False

    def run(self) -> None:
        """Converts the events by the map, prints a preview, and writes the log."""
        from prefermab.programme.tables.table import check_table_path

        if self.propose:
            self.write_map()
            return
        if self.out is not None:
            check_table_path(self.out)
        made = self.convert()
        if self.json:
            self.write(made)
            facts = dataclasses.asdict(made.counts)
            print(
                json.dumps({"out": None if self.out is None else str(self.out), **facts}, indent=2)
            )
            return
        self.show(made)
        self.write(made)
        print("nothing was written: add --out" if self.out is None else f"written to {self.out}")

    def convert(self) -> "EventLog":
        """The log; with --pseudonymise, ids are replaced by pseudonyms."""
        from prefermab.programme.events.convert import from_events

        made = from_events(self.file, self.map)
        if self.pseudonymise is None:
            return made
        from prefermab.programme.tables.privacy import pseudonyms

        log = made.log.with_columns(pseudonyms(made.log["id"], load_key(self.pseudonymise)))
        return dataclasses.replace(made, log=log)

    def show(self, made: "EventLog") -> None:
        """Prints the rows of ten people, and the counts."""
        from prefermab.programme.events.convert import count_lines, preview_lines
        from prefermab.programme.events.mapping import read_map

        nothing = read_map(self.map)[0].action.nothing
        for line in (*preview_lines(made, nothing), "", *count_lines(made.counts)):
            print(visible(line))

    def write(self, made: "EventLog") -> None:
        """Writes the log, if a file was named."""
        from prefermab.programme.tables.table import write_table

        if self.out is not None:
            write_table(made.log, self.out)

    def write_map(self) -> None:
        """Writes a first map, unless the file exists."""
        from prefermab.common.files import write_atomically
        from prefermab.programme.events.propose import propose_map
        from prefermab.programme.tables.table import read_table, source_of

        if self.map.exists():
            raise InputError(f"{self.map} exists already: --propose writes a new file only.")
        text = propose_map(read_table(self.file), source_of(self.file))
        write_atomically(self.map, lambda draft: draft.write_text(text, encoding="utf-8"))
        print(
            f"a first map was written to {self.map}: check every line, then run without --propose"
        )
