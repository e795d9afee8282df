"""Flips bits in every kind of file that is read, and reads bombs: small files that are very large.

    python tests/damage.py flips NUMBER SEED
    python tests/damage.py fuzz NUMBER SEED
    python tests/damage.py bombs FOLDER

`flips` changes one bit of a file at a time and `fuzz` any number of its bytes. They print for each
kind of file how often the answer was the same, one sentence, different, or an error of another
kind. All of them have 1 GB of memory and 10 seconds for each file.
"""

import contextlib
import dataclasses
import gzip
import json
import random
import resource
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import prefermab as pm
from prefermab.errors import PrefermabError
from prefermab.models.saving import named_arrays
from prefermab.programme.events.mapping import read_map
from prefermab.programme.evidence.designs import Design
from prefermab.programme.evidence.protocol import randomise, read_protocol
from prefermab.programme.tables.apart import read_any
from prefermab.programme.tables.table import write_table
from prefermab.training.checkpoints import Checkpoint, read_checkpoint, write_checkpoint

MEMORY, SECONDS = 1 << 30, 10.0
"""What a process may take to read any file."""

PEOPLE = pl.DataFrame(
    {
        "id": [f"p{number}" for number in range(40)],
        "state": ["good", "fair", None, "bad"] * 10,
        "age": list(range(20, 60)),
        "cost_call": [0.5 * number for number in range(40)],
    }
)

MAP = """
who = "person"
when = "date"
round = "1w"
state = { value = "answered", labels = { good = "value == 'yes'", bad = "value == 'no'" } }
action = { nothing = "none", labels = { call = "called == 'yes'" } }
"""

UNSEEN = ("csv", "tsv", "parquet", "json", "sqlite", "map", "card")
"""Kinds of file without a checksum of what they hold: a flipped bit in a text is another text."""


def write_sqlite(path: Path) -> None:
    """The people as a table of SQLite."""
    with contextlib.closing(sqlite3.connect(path)) as sql:
        sql.execute("CREATE TABLE people (id TEXT, state TEXT, age INTEGER, cost_call REAL)")
        sql.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", PEOPLE.rows())
        sql.commit()


def write_protocol(path: Path) -> None:
    """The protocol of a trial, in the folder of `path`."""
    made = randomise(PEOPLE.drop("state"), Design("individual", 4), balance=["age"], seed=3)
    made.write(path.parent)


def thrift(fields: dict[int, tuple[int, Any]]) -> bytes:
    """A structure in the compact format of Thrift, from the kind and value of each field."""
    last, out = 0, b""
    for number, (kind, value) in fields.items():
        out += bytes([(number - last) << 4 | kind]) + thrift_value(kind, value)
        last = number
    return out + b"\0"


def thrift_value(kind: int, value: Any) -> bytes:
    """A value: 5 and 6 are numbers, 8 is bytes, 9 a list with the kind of its items, 12 fields."""
    if kind == 12:
        return thrift(value)
    if kind == 9:
        of, items = value
        return bytes([len(items) << 4 | of]) + b"".join(thrift_value(of, x) for x in items)
    number, out = len(value) if kind == 8 else (value << 1) ^ (value >> 63), b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number]) + (value if kind == 8 else b"")


def write_checked_parquet(path: Path, rows: int = 40) -> None:
    """A column `id` as Spark writes it: with a checksum of its page, which polars does not write.
    The footer says that there are so many rows, of which the page has 40."""
    page = np.arange(40, dtype="<i8").tobytes()
    size, checksum = (5, len(page)), zlib.crc32(page)
    cells = {1: (5, 40), 2: (5, 0), 3: (5, 3), 4: (5, 3)}
    signed = checksum - (checksum >> 31 << 32)
    head = thrift({1: (5, 0), 2: size, 3: size, 4: (5, signed), 5: (12, cells)})
    whole = (6, len(head + page))
    column = {1: (5, 2), 2: (9, (5, [0])), 3: (9, (8, [b"id"])), 4: (5, 0), 5: (6, rows),
              6: whole, 7: whole, 9: (6, 4)}  # fmt: skip
    group = {1: (9, (12, [{2: (6, 4), 3: (12, column)}])), 2: whole, 3: (6, rows)}
    schema = [{4: (8, b"table"), 5: (5, 1)}, {1: (5, 2), 3: (5, 0), 4: (8, b"id")}]
    footer = thrift({1: (5, 1), 2: (9, (12, schema)), 3: (6, rows), 4: (9, (12, [group]))})
    end = len(footer).to_bytes(4, "little") + b"PAR1"
    path.write_bytes(b"PAR1" + head + page + footer + end)


STATE = {"weights": np.arange(60, dtype=np.float32).reshape(6, 10)}


def checkpoint_at(path: Path) -> None:
    """A checkpoint of a training."""
    write_checkpoint(path, "a training", Checkpoint(3, STATE, {"loss": np.arange(9.0)}))


def copy_model(path: Path) -> None:
    """A model with the metrics of a training; `path` is one of its files."""
    shutil.rmtree(path.parent)
    history = pl.DataFrame({"step": range(50), "loss": [1 / (1 + step) for step in range(50)]})
    dataclasses.replace(pm.load("armman"), history=history).save(path.parent)


def table_as_text(path: Path) -> str:
    """All cells of a table."""
    return str(read_any(path).to_dict(as_series=False))


def model_as_text(path: Path) -> str:
    """Everything about a model."""
    found = pm.load(path.parent)
    arrays = {name: array.tobytes() for name, array in named_arrays(found.network).items()}
    history = None if found.history is None else found.history.to_dict(as_series=False)
    return str((found.describe(), sorted(arrays.items()), history))


def card_as_text(path: Path) -> str:
    """A model with its card."""
    return model_as_text(path) + pm.load(path.parent).card


def checkpoint_as_text(path: Path) -> str:
    """Everything in a checkpoint."""
    found = read_checkpoint(path, "a training", STATE)
    return str((found.pieces, named_arrays(found.state), found.rows))


def protocol_as_text(path: Path) -> str:
    """The facts and the assignment of a trial."""
    found = read_protocol(path.parent)
    return str((found.facts, found.assignment.to_dict(as_series=False)))


def write_text(text: str) -> Callable[[Path], object]:
    """A function that writes a text."""
    return lambda path: path.write_text(text)


Kind = tuple[str, Callable[[Path], object], Callable[[Path], str]]
KINDS: dict[str, Kind] = {
    "csv": ("people.csv", lambda path: write_table(PEOPLE, path), table_as_text),
    "tsv": ("people.tsv", lambda path: PEOPLE.write_csv(path, separator="\t"), table_as_text),
    "csv.gz": (
        "people.csv.gz",
        lambda path: path.write_bytes(gzip.compress(PEOPLE.write_csv().encode(), mtime=0)),
        table_as_text,
    ),
    "parquet": ("people.parquet", lambda path: write_table(PEOPLE, path), table_as_text),
    "parquet of Spark": ("people.parquet", write_checked_parquet, table_as_text),
    "xlsx": ("people.xlsx", lambda path: write_table(PEOPLE, path), table_as_text),
    "json": ("people.json", lambda path: PEOPLE.write_json(path), table_as_text),
    "sqlite": ("people.db", write_sqlite, table_as_text),
    "map": ("map.toml", write_text(MAP), lambda path: str(read_map(path)[0])),
    "configuration": ("config.json", copy_model, model_as_text),
    "weights": ("model.safetensors", copy_model, model_as_text),
    "metrics": ("metrics.parquet", copy_model, model_as_text),
    "card": ("README.md", copy_model, card_as_text),
    "checkpoint": ("a.checkpoint", checkpoint_at, checkpoint_as_text),
    "protocol": ("protocol.json", write_protocol, protocol_as_text),
    "assignment": ("assignment.csv", write_protocol, protocol_as_text),
}
"""For each kind of file: its name, how it is written, and how all that it says is read."""


def flip(data: bytes, lots: random.Random) -> bytes:
    """The same bytes but for one bit."""
    place = lots.randrange(8 * len(data))
    return change(data, place // 8, bytes([data[place // 8] ^ 1 << place % 8]))


def change(data: bytes, place: int, new: bytes) -> bytes:
    """The bytes with others in one place."""
    return data[:place] + new + data[place + len(new) :]


def mutate(data: bytes, lots: random.Random) -> bytes:
    """The bytes after one to four changes of any size."""
    for _ in range(lots.randint(1, 4)):
        place, size = lots.randrange(len(data) or 1), lots.choice([1, 2, 4, 30, 1000])
        old, random_bytes = data[place : place + size], lots.randbytes(size)
        new = lots.choice([b"", 2 * old, random_bytes, b"\xff" * size, bytes(size), old * 10_000])
        rest = data[place + size :] if lots.random() < 0.8 else b""
        data = data[:place] + new + rest
    return data


def outcome(read: Callable[[Path], str], path: Path, right: str) -> str:
    """What reading a damaged file came to."""
    begun = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read(path)
        what = "the same" if found == right else "different"
    except PrefermabError as error:
        text = str(error)
        what = "one sentence" if "\n" not in text and len(text) < 700 else f"long: {text[:300]}"
    except BaseException as error:
        what = f"error {type(error).__name__}: {str(error)[:200]}"
    return what if time.monotonic() - begun < SECONDS else f"slow, {what}"


def damaged(
    number: int, seed: int, damage: Callable[[bytes, random.Random], bytes]
) -> dict[str, Counter[str]]:
    """Damages files of all kinds, one at a time, and reads them."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    lots = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        rights = {}
        for kind, (name, write, read) in KINDS.items():
            path = Path(folder) / kind / "whole" / name
            path.parent.mkdir(parents=True)
            write(path)
            rights[kind] = read(path), path, path.read_bytes()
        for turn in range(number):
            kind = list(KINDS)[turn % len(KINDS)]
            right, path, whole = rights[kind]
            path.write_bytes(damage(whole, lots))
            found[kind][outcome(KINDS[kind][2], path, right)] += 1
            path.write_bytes(whole)
    return found


SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_book(path: Path, rows: str, shared: str = "", blanks: int = 0) -> None:
    """A workbook with one sheet, whose rows are given as XML, shared texts, and MB of blanks."""
    parts = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships><Relationship Id="r1" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="people" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": "<Relationships>"
        f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}"><sheetData>{HEADER}{rows}'
        "</sheetData></worksheet>",
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{shared}</sst>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
        with archive.open("xl/blanks.bin", "w") as file:
            for _ in range(blanks):
                file.write(bytes(1 << 20))


HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c></row>'


def write_lying_book(path: Path) -> None:
    """A workbook with a part of 257 MB that says that it has 1,000 bytes, with their checksum."""
    write_book(path, "", blanks=257)
    with zipfile.ZipFile(path) as archive:
        part = archive.getinfo("xl/blanks.bin")
    data = path.read_bytes()
    place = data.rindex(struct.pack("<I", part.CRC))
    lie = struct.pack("<III", zlib.crc32(bytes(1000)), part.compress_size, 1000)
    path.write_bytes(change(data, place, lie))


def view(query: str) -> Callable[[Path], None]:
    """A database with one view."""

    def write(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as sql:
            sql.execute(f"CREATE VIEW people AS {query}")
            sql.commit()

    return write


COUNT = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"

BOMBS: dict[str, Callable[[Path], object]] = {
    "a key for each row.json": lambda path: path.write_text(
        json.dumps([{f"key {row}": 1} for row in range(8000)])
    ),
    "deep.json": lambda path: path.write_text("[" * 100_000),
    "a long list.parquet": lambda path: pl.DataFrame(
        {"id": [1], "list": [np.zeros(1_000_000)]}
    ).write_parquet(path),
    "one text for all.parquet": lambda path: pl.DataFrame(
        {"id": pl.repeat("a" * 100_000, 3_000, eager=True)}
    ).write_parquet(path),
    "many rows.parquet": lambda path: pl.DataFrame(
        {"id": pl.repeat(7, 34_000_000, dtype=pl.UInt8, eager=True)}
    ).write_parquet(path),
    "one text for all.xlsx": lambda path: write_book(
        path,
        "".join(f'<row r="{r}"><c r="A{r}" t="s"><v>0</v></c></row>' for r in range(2, 30_000)),
        f"<si><t>{'a' * 32_000}</t></si>",
    ),
    "a far cell.xlsx": lambda path: write_book(
        path, '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    ),
    "sizes that lie.xlsx": write_lying_book,
    "many blanks.csv.gz": lambda path: path.write_bytes(gzip.compress(b" " * (1 << 20)) * 257),
    "one long line.csv": lambda path: path.write_bytes(b"id\n\xe9\n" + b"a" * 3_000_000),
    "no end.db": view(
        f"{COUNT} SELECT {', '.join(f'x AS a{column}' for column in range(60))} FROM c"
    ),
    "long values.db": view(f"{COUNT} SELECT zeroblob(9000000) AS id FROM c LIMIT 1000"),
    "deep.toml": lambda path: path.write_text("who = " + "[" * 100_000),
}
"""Small files that are very large in memory, or keep their reader busy."""


def read_bomb(path: Path) -> str:
    """Reads a file as a table, or as a map."""
    return str(read_map(path)) if path.suffix == ".toml" else table_as_text(path)


def write_bombs(folder: Path) -> dict[str, int]:
    """Writes all bombs; returns the size of each."""
    for name, write in BOMBS.items():
        write(folder / name)
    return {name: (folder / name).stat().st_size for name in BOMBS}


def read_bombs(folder: str) -> dict[str, str]:
    """What became of reading each bomb."""
    return {name: outcome(read_bomb, Path(folder) / name, "") for name in BOMBS}


def limit_memory() -> None:
    """Ends this process if it takes more memory than reading any file may."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def main(what: str, *given: str) -> None:
    """What the command line asks for."""
    limit_memory()
    if what == "bombs":
        print(json.dumps(read_bombs(*given)))
    else:
        number, seed = map(int, given)
        print(json.dumps(damaged(number, seed, flip if what == "flips" else mutate)))


if __name__ == "__main__":
    main(*sys.argv[1:])
