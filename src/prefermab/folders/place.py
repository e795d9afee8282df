"""The folder that a plan is written to: what may be there, and what an interrupted plan left."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import prefermab
from prefermab.errors import InputError
from prefermab.files import write_atomically
from prefermab.folders.passes import Job, model_of
from prefermab.folders.pieces import Piece
from prefermab.planning.summary import Summary
from prefermab.storage import fingerprint


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a plan goes."""

    job: Job
    pieces: list[Piece]
    waiting: int

    @property
    def out(self) -> Path:
        """The folder of the plan."""
        return Path(self.job.out)

    @property
    def note(self) -> Path:
        """Says which plan is under way here."""
        return self.job.scratch / "inputs.json"

    def enter(self) -> None:
        """Begins a plan in an empty folder, or goes on with the same one."""
        if self.out.is_file():
            raise InputError(f"cannot write the plan to {self.out}: it is a file.")
        told = self.inputs()
        if self.note.exists():
            if self._read() != told:
                raise InputError(
                    f"{self.out} holds an unfinished plan of other people, another model, budget "
                    "or rules: ask for that one again, or take another folder."
                )
            return
        if self.out.is_dir() and any(self.out.iterdir()):
            raise InputError(f"{self.out} is not empty: a plan needs a folder of its own.")
        write_atomically(self.note, lambda draft: draft.write_text(json.dumps(told)))

    def price(self, find: Callable[[], float]) -> float:
        """The price, found once."""
        file = self.job.scratch / "price.json"
        if not file.exists():
            price = find()
            write_atomically(file, lambda draft: draft.write_text(json.dumps(price)))
        return float(json.loads(file.read_text()))

    def leave(self, summary: Summary) -> None:
        """The plan is done: nothing else stays in the folder."""
        target = self.out / "summary.json"
        write_atomically(target, lambda draft: draft.write_text(summary.as_json() + "\n"))
        for file in self.job.scratch.iterdir():
            if file != self.note:
                file.unlink(missing_ok=True)
        shutil.rmtree(self.job.scratch)

    def abandon(self) -> None:
        """There is no such plan: what was begun is of no use once the inputs are mended."""
        if not any(self.job.part(piece).exists() for piece in self.pieces):
            shutil.rmtree(self.job.scratch, ignore_errors=True)

    def inputs(self) -> dict[str, object]:
        """All that the plan depends on."""
        told = {
            "version": prefermab.__version__,
            "model": fingerprint(model_of(self.job.model)),
            "rules": dataclasses.asdict(self.job.rules),
            "budget": self.job.budget,
            "waiting": self.waiting,
            "reasons": self.job.reasons,
            "pieces": [[Path(p.file).name, p.first, p.rows] for p in self.pieces],
            "parts": {file: _stamp(file) for file in sorted({p.file for p in self.pieces})},
        }
        return json.loads(json.dumps(told))

    def _read(self) -> object:
        try:
            return json.loads(self.note.read_text())
        except (OSError, ValueError):
            return None


def _stamp(file: str) -> list[int]:
    found = Path(file).stat()
    return [found.st_size, found.st_mtime_ns]
