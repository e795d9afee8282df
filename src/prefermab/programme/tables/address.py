"""Addresses of tables: a file or a database, and settings for reading it.

A `#` in an address is followed by the sheet of a workbook, the table of a database or a setting:
`visits.xlsx#May`, `calls.db#visits`, `visits.csv#encoding=cp1250`, `visits.csv#decimal=,`. If there
is a file with the whole address as its name, that file is meant.
"""

import dataclasses
from pathlib import Path
from urllib.parse import urlsplit

from prefermab.common.files import exists
from prefermab.errors import InputError

TEXT = (".csv", ".tsv", ".txt")
WORKBOOK = (".xlsx", ".xlsm")
PARQUET = (".parquet", ".pq")
SQLITE = (".db", ".sqlite", ".sqlite3")
URLS = ("sqlite", "postgresql", "postgres")
ENDINGS_BY_KIND = {"text": TEXT, "workbook": WORKBOOK, "parquet": PARQUET, "sqlite": SQLITE}
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a table is, and the settings for reading it."""

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
        for kind, endings in ENDINGS_BY_KIND.items():
            if ending.lower() in endings and (kind == "text" or path.suffix.lower() != ".gz"):
                return kind
        expected = ", ".join(ending for endings in ENDINGS_BY_KIND.values() for ending in endings)
        raise InputError(
            f"{self.shown}: expected a file that ends in {expected} or .csv.gz, or the URL of a "
            "database."
        )

    @property
    def shown(self) -> str:
        """The address in messages, with *** for a password in a URL."""
        place = self.place
        if self.is_url and (password := urlsplit(place).password):
            place = place.replace(f":{password}@", ":***@", 1)
        return f"{place}#{self.part}" if self.part else place

    @property
    def first_row(self) -> int:
        """The number of the first row in messages: 2 in text files and workbooks, else 1."""
        return 2 if self.kind in ("text", "workbook") else 1


def parse_address(table: str | Path, **settings: str | None) -> Address:
    """Parses an address as a user writes it; `settings` that are not None replace those in it.

    >>> from prefermab.programme.tables.address import parse_address
    >>> parse_address("visits.xlsx#May").part, parse_address("a.csv#encoding=cp1250").encoding
    ('May', 'cp1250')
    """
    text = str(table)
    given = {name: value for name, value in settings.items() if value is not None}
    if "#" not in text or exists(Path(text)):
        return _check_settings(Address(text, **given))
    place, *marks = text.split("#")
    written: dict[str, str] = {}
    for mark in marks:
        name, equals, value = mark.partition("=")
        if equals and name in ("encoding", "separator", "decimal"):
            written[name] = value
        elif mark and "part" not in written:
            written["part"] = mark
        else:
            raise InputError(
                f"{text}: expected a sheet or table, encoding=..., separator=... or decimal=... "
                f"after a #, not '{mark}'."
            )
    return _check_settings(Address(place, **{**written, **given}))


def _check_settings(address: Address) -> Address:
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
        raise InputError(f"{address.shown}: decimal must be , or ., not '{decimal}'.")
    return dataclasses.replace(address, separator=separator, decimal=decimal)
