"""Atomic writing, checking and locking of files, and the cache of compiled code."""

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
from filelock import FileLock, Timeout

from prefermab.errors import BusyError, InputError, StorageError

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a file that it cannot read; a panic is not even an `Exception`."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` on a temporary file beside `path`, then renames it to `path`.

    A reader sees the old file or the new one, never half of it. Files may be about people: a new
    one can be read by its owner only, an existing one keeps its mode.

    >>> import tempfile, pathlib
    >>> from prefermab.common.files import write_atomically
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "new" / "note.txt"
    >>> write_atomically(path, lambda draft: draft.write_text("done"))
    >>> path.read_text()
    'done'
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}.") from None
    os.close(handle)
    draft = Path(name)
    try:
        write(draft)
        with contextlib.suppress(FileNotFoundError):
            draft.chmod(stat.S_IMODE(path.stat().st_mode))
        draft.replace(path)
    except IsADirectoryError:
        raise InputError(f"cannot write {path}: it is a folder.") from None
    except Exception as error:
        # Polars reports a full disk in errors of its own, with the system's number in their text.
        known = re.search(r"\(os error (\d+)\)", str(error))
        number = int(known[1]) if known else getattr(error, "errno", None)
        if number is None:
            raise
        raise StorageError(f"cannot write {path}: {os.strerror(number)}.") from None
    finally:
        draft.unlink(missing_ok=True)


def make_private_file(path: Path) -> None:
    """Makes an empty file that only its owner can read, unless there is a file already."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; false for what cannot be a path, such as a name that
    is too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def panics_unseen() -> Iterator[None]:
    """Hides what polars prints on standard error when it panics: the caller says it in a sentence.

    Standard error belongs to the whole process, so this does nothing while there are other threads.
    """
    if threading.active_count() > 1 or sys.stderr is None:
        yield
        return
    sys.stderr.flush()
    shown, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        os.close(nowhere)


def check_file(path: Path, shown: str | None = None, most: int | None = None) -> None:
    """Raises an error unless `path` is an existing regular file.

    Args:
        path: The file.
        shown: Its name in messages; the path by default.
        most: Largest size in bytes; any size by default.
    """
    shown = shown or str(path)
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{shown}: there is no such file.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{shown}: it cannot be read: {why}.") from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{shown}: expected a file, but it is a folder.")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{shown}: expected a file, but it is a device or a pipe.")
    if most is not None and found.st_size > most:
        raise InputError(
            f"{shown}: it has {found.st_size:,} bytes, and at most {most:,} were expected."
        )


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Holds a lock on `path`; raises `BusyError` with the message `busy` if another process does.

    The operating system releases the lock when the process ends, even if it is killed.

    >>> import tempfile, pathlib
    >>> from prefermab.common.files import locked
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "lock"
    >>> with locked(path, "taken."), locked(path, "taken."):
    ...     pass
    Traceback (most recent call last):
        ...
    prefermab.errors.BusyError: taken.
    """
    lock = FileLock(path, timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise BusyError(busy) from None
    except OSError as error:
        # Some shared folders do not support locks. Then the work goes on without one.
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
            raise StorageError(f"cannot write {path}: {error.strerror or error}.") from None
    try:
        yield
    finally:
        lock.release()


def use_compilation_cache() -> None:
    """Stores compiled code in the user's cache folder, so that the next run need not compile again.

    Does nothing if JAX has a cache folder already.
    """
    import jax
    import platformdirs

    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = Path(platformdirs.user_cache_dir("prefermab")) / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        # A full disk or a killed process leaves empty files; JAX would warn of them in every run.
        for file in folder.glob("*-cache"):
            with contextlib.suppress(OSError):
                if not file.stat().st_size:
                    file.unlink()
        warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
        jax.config.update("jax_compilation_cache_dir", str(folder))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
