"""Not a rule about people, but about their table: columns that are not read."""

from collections.abc import Mapping, Sequence

from prefermab.programme.planning.rules.base import Rule, setting


class IgnoredColumns(Rule):
    """Columns that are not read, although they are nearly called like one that is, such as
    `opt_in_date` in a table without `opt_in`. Otherwise such a table is refused."""

    name = "ignored_columns"

    ignore_columns: Sequence[str] = setting(
        (),
        "Columns that are not read, although they are nearly called like one that is, such as "
        "opt_in_date in a table without opt_in. Otherwise such a table is refused.",
        part=None, option="ignore", metavar="COLUMN ...",
        label="Columns to ignore", hint="Nearly called like one that is read, such as opt_in_date.",
    )  # fmt: skip

    def words(self) -> Mapping[str, tuple[str, str]]:
        return {}
