"""The folder that a plan is written to, with the unfinished work of an interrupted plan."""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import prefermab
from prefermab.common.files import locked, write_atomically
from prefermab.errors import InputError, StorageError
from prefermab.models.loading import fingerprint
from prefermab.programme.bulk.chunks import Chunk, Job, model_of
from prefermab.programme.planning.plan import Summary


@dataclasses.dataclass(frozen=True)
class Output:
    """The output folder of a plan."""

    job: Job
    chunks: list[Chunk]
    waiting: int

    @property
    def out(self) -> Path:
        """The folder of the plan."""
        return Path(self.job.out)

    @property
    def inputs_file(self) -> Path:
        """The file with the inputs of the unfinished plan."""
        return self.job.scratch / "inputs.json"

    @property
    def unmoved_summary(self) -> Path:
        """The file with the summary, until all parts are moved to their place."""
        return self.job.scratch / "summary.json"

    @property
    def summary_file(self) -> Path:
        """The file with the summary of the finished plan."""
        return self.out / "summary.json"

    @contextlib.contextmanager
    def started(self) -> Iterator[Summary | None]:
        """Starts a plan in an empty folder, or continues the same plan, under a lock. Yields the
        summary if the plan is finished already, else None."""
        if self.out.is_file():
            raise InputError(f"cannot write the plan to {self.out}: it is a file.")
        inputs = self.inputs()
        if self.finished(inputs):
            self._clear()
            yield summary_of(self.summary_file)
            return
        self._check(inputs)
        taken = (
            f"another process is making this plan in {self.out}: let it end, or try again later."
        )
        with locked(self.job.scratch / "lock", taken):
            self._check(inputs)
            if not self.inputs_file.exists():
                write_atomically(
                    self.inputs_file, lambda draft: draft.write_text(json.dumps(inputs))
                )
            yield None

    def finished(self, inputs: object) -> bool:
        """Whether this plan is finished here."""
        try:
            same = json.loads(self.summary_file.read_text())["origin"]["inputs"] == checksum(inputs)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return same and all((self.out / self.job.part(p).name).exists() for p in self.chunks)

    def price(self, find: Callable[[], float]) -> float:
        """The price, which is found once and stored."""
        file = self.job.scratch / "price.json"
        if not file.exists():
            price = find()
            write_atomically(file, lambda draft: draft.write_text(json.dumps(price)))
        return float(json.loads(file.read_text()))

    def finish(self, summary: Summary) -> None:
        """Moves a plan to its place, once all its parts are written."""
        inputs = self.inputs()
        if self._stored_inputs() != inputs:
            raise InputError("people or model have changed while the plan was made: make it again.")
        origin = {
            "package": prefermab.__version__,
            "model": self._model_name(),
            "fingerprint": inputs["model"],
            "inputs": checksum(inputs),
        }
        text = json.dumps({**dataclasses.asdict(summary), "origin": origin}, indent=2) + "\n"
        write_atomically(self.unmoved_summary, lambda draft: draft.write_text(text))
        self.move_parts()

    def _model_name(self) -> str:
        """The model's name in the summary; a model in memory has no lasting folder to name."""
        if Path(self.job.model).parent == self.job.scratch:
            return model_of(self.job.model).domain_name
        return self.job.model

    def move_parts(self) -> Summary:
        """Moves parts that are not in their place yet, the summary last, and removes the rest."""
        summary = summary_of(self.unmoved_summary)
        for chunk in self.chunks:
            part = self.job.part(chunk)
            if part.exists():
                part.replace(self.out / part.name)
        self.unmoved_summary.replace(self.summary_file)
        self._clear()
        return summary

    @contextlib.contextmanager
    def cleanup_on_input_error(self) -> Iterator[None]:
        """Deletes the unfinished plan if the input is wrong; keeps it after any other error."""
        try:
            yield
        except InputError:
            self._clear()
            raise
        except OSError as error:
            why = error.strerror or error
            raise StorageError(f"cannot write the plan to {self.out}: {why}.") from None

    def inputs(self) -> dict[str, object]:
        """Everything that the plan depends on."""
        inputs = {
            "version": prefermab.__version__,
            "model": fingerprint(model_of(self.job.model)),
            "rules": self.job.rules.given(),
            "budget": self.job.budget,
            "waiting": self.waiting,
            "reasons": self.job.reasons,
            **({} if self.job.rounds_left is None else {"rounds_left": self.job.rounds_left}),
            "chunks": [[Path(p.file).name, p.first, p.rows] for p in self.chunks],
            "parts": {file: _stamp(file) for file in sorted({p.file for p in self.chunks})},
        }
        return json.loads(json.dumps(inputs))

    def _check(self, inputs: object) -> None:
        if self.inputs_file.exists():
            if self._stored_inputs() != inputs:
                raise InputError(
                    f"{self.out} holds an unfinished plan of other people, another model, budget "
                    "or rules: make that plan again, or use another folder."
                )
            return
        begun = self.job.scratch
        folders = [folder for folder in (self.out, begun) if folder.is_dir()]
        inside = {file for folder in folders for file in folder.iterdir()}
        if inside - {begun, begun / "lock"}:
            raise InputError(f"{self.out} is not empty: a plan needs a folder of its own.")

    def _clear(self) -> None:
        """Removes the unfinished plan, the file with its inputs last."""
        with contextlib.suppress(OSError):
            for file in self.job.scratch.iterdir():
                if file.is_file() and file not in (self.inputs_file, self.job.scratch / "lock"):
                    file.unlink()
        shutil.rmtree(self.job.scratch, ignore_errors=True)

    def _stored_inputs(self) -> object:
        try:
            return json.loads(self.inputs_file.read_text())
        except (OSError, ValueError):
            return None


def checksum(inputs: object) -> str:
    """A checksum of what a plan depends on."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def summary_of(file: Path) -> Summary:
    """The summary that a file holds."""
    kept = json.loads(file.read_text())
    named = (field.name for field in dataclasses.fields(Summary))
    return Summary(**{name: kept[name] for name in named if name in kept})


def _stamp(file: str) -> list[int]:
    found = Path(file).stat()
    return [found.st_size, found.st_mtime_ns]
