"""The address of a table: a file or a database, and how it is to be read.

After a `#` stands the sheet of a workbook or the table of a database, or a setting:
`visits.xlsx#May`, `calls.db#visits`, `visits.csv#encoding=cp1250`, `visits.csv#decimal=,`. A file
whose own name holds a `#` is found first.
"""

import dataclasses
from pathlib import Path
from urllib.parse import urlsplit

from prefermab.errors import InputError

TEXT = (".csv", ".tsv", ".txt")
WORKBOOK = (".xlsx", ".xlsm")
PARQUET = (".parquet", ".pq")
SQLITE = (".db", ".sqlite", ".sqlite3")
URLS = ("sqlite", "postgresql", "postgres")
KINDS = {"text": TEXT, "workbook": WORKBOOK, "parquet": PARQUET, "sqlite": SQLITE}
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a table is, and what was said about reading it."""

    place: str
    """The path of a file, or the URL of a database."""
    part: str | None = None
    """The sheet of a workbook, or the table of a database."""
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None

    @property
    def is_url(self) -> bool:
        """Whether it is the URL of a database."""
        return self.place.partition("://")[0] in URLS and "://" in self.place

    @property
    def path(self) -> Path:
        """The file; for a URL of SQLite, the file behind it."""
        if self.place.startswith("sqlite://"):
            return Path(self.place.removeprefix("sqlite://").removeprefix("/"))
        return Path(self.place)

    @property
    def kind(self) -> str:
        """text, workbook, parquet, sqlite or postgresql."""
        if self.is_url:
            return "sqlite" if self.place.startswith("sqlite") else "postgresql"
        path = self.path
        ending = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
        for kind, endings in KINDS.items():
            if ending.lower() in endings and (kind == "text" or path.suffix.lower() != ".gz"):
                return kind
        expected = ", ".join(ending for endings in KINDS.values() for ending in endings)
        raise InputError(
            f"{self.shown}: expected a file that ends in {expected} or .csv.gz, or the URL of a "
            "database."
        )

    @property
    def shown(self) -> str:
        """What messages call it; a password in a URL is left out."""
        place = self.place
        if self.is_url and (password := urlsplit(place).password):
            place = place.replace(f":{password}@", ":***@", 1)
        return f"{place}#{self.part}" if self.part else place

    @property
    def first_row(self) -> int:
        """The number of the first row in messages: below a header, as in a spreadsheet, it is 2."""
        return 2 if self.kind in ("text", "workbook") else 1


def parse_address(table: str | Path, **settings: str | None) -> Address:
    """The address that somebody wrote; settings that are not None count more than what it says.

    >>> from prefermab.programme.sources.address import parse_address
    >>> parse_address("visits.xlsx#May").part, parse_address("a.csv#encoding=cp1250").encoding
    ('May', 'cp1250')
    """
    text = str(table)
    given = {name: value for name, value in settings.items() if value is not None}
    if "#" not in text or _exists(Path(text)):
        return _checked(Address(text, **given))
    place, *marks = text.split("#")
    said: dict[str, str] = {}
    for mark in marks:
        name, equals, value = mark.partition("=")
        if equals and name in ("encoding", "separator", "decimal"):
            said[name] = value
        elif mark and "part" not in said:
            said["part"] = mark
        else:
            raise InputError(
                f"{text}: after a # stands a sheet or table, encoding=..., separator=... or "
                f"decimal=..., not '{mark}'."
            )
    return _checked(Address(place, **{**said, **given}))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _checked(address: Address) -> Address:
    separator = address.separator
    if separator is not None:
        separator = SEPARATORS.get(separator, separator)
        if len(separator) != 1:
            raise InputError(
                f"{address.shown}: separator must be comma, semicolon, tab, bar or one character, "
                f"not '{separator}'."
            )
    decimal = {"comma": ",", "dot": ".", "point": "."}.get(address.decimal or "", address.decimal)
    if decimal not in (None, ".", ","):
        raise InputError(f"{address.shown}: decimal must be , or . and not '{decimal}'.")
    return dataclasses.replace(address, separator=separator, decimal=decimal)
