"""The command `audit`: shows who changed what in a programme, and checks that record."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from tyro.conf import arg, subcommand

from prefermab.cli.options import JsonFlag, option
from prefermab.cli.status import ProgrammeFile


@dataclasses.dataclass(frozen=True)
class VerifyCommand:
    """Check that the audit log, and all that it covers, was not changed after it was written."""

    file: ProgrammeFile
    head: Annotated[str | None, option("HASH")] = None
    """Hash that an earlier check printed; the check fails if its row is no longer in the log."""
    json: JsonFlag = False

    def run(self) -> None:
        """Checks the log, and prints the hash of its last row."""
        from prefermab.programme.store.covered import NOT_COVERED
        from prefermab.programme.store.database import Database
        from prefermab.programme.store.verifying import verify_audit

        database = Database(self.file, 60.0, begin=False)
        with database.reading() as sql:
            proof = verify_audit(sql, self.head)
        database.close()
        if self.json:
            print(json.dumps(dataclasses.asdict(proof), indent=2))
            return
        print(f"{proof.rows:,} rows: they, and all tables that they cover, are unchanged")
        if proof.since > 1:
            print(
                f"rows 1 to {proof.since - 1:,} are of an earlier version: of what they changed, "
                "only plans and records are covered"
            )
        print(f"not covered: {', '.join(NOT_COVERED)} (docs/programme.md says why)")
        if proof.kept is not None:
            print(f"the hash of --head is that of row {proof.kept:,}")
        print(f"hash of the last row: {proof.head}")
        print("keep it elsewhere: a check with --head HASH detects a log that was replaced")


@dataclasses.dataclass(frozen=True)
class AuditLogCommand:
    """Write the audit log as a table."""

    file: ProgrammeFile
    out: Path
    """File to write the table to (.csv, .parquet or .xlsx)."""

    def run(self) -> None:
        """Writes the log."""
        from prefermab.programme.store.audit import read_audit
        from prefermab.programme.store.database import Database
        from prefermab.programme.tables.table import check_table_path, write_table

        check_table_path(self.out)
        database = Database(self.file, 60.0, begin=False)
        with database.reading() as sql:
            rows = read_audit(sql)
        database.close()
        write_table(rows, self.out)
        print(f"{rows.height:,} rows written to {self.out}")


@dataclasses.dataclass(frozen=True)
class AuditCommand:
    """Show or verify the log of who changed what."""

    action: Annotated[
        Annotated[VerifyCommand, subcommand("verify")]
        | Annotated[AuditLogCommand, subcommand("log")],
        arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Runs the command within `audit`."""
        self.action.run()
