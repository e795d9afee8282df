"""Files that are whole or not there: nothing already written is lost or half-written."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from prefermab.errors import BusyError, InputError, StorageError

try:
    import fcntl
except ImportError:  # Windows, which has no such locks
    fcntl = None


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` on a temporary file beside `path`, then puts it in its place.

    >>> import tempfile, pathlib
    >>> from prefermab.files import write_atomically
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
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o666 & ~umask)
        draft.replace(path)
    except IsADirectoryError:
        raise InputError(f"cannot write {path}: it is a folder.") from None
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Keeps `path` locked; where another process does, `BusyError` with the words `otherwise`.

    The lock ends with the process, however that ends. Where the system has no locks there is none.

    >>> import tempfile, pathlib
    >>> from prefermab.files import locked
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "lock"
    >>> with locked(path, "taken."), locked(path, "taken."):
    ...     pass
    Traceback (most recent call last):
        ...
    prefermab.errors.BusyError: taken.
    """
    if fcntl is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(otherwise) from None
        except OSError:
            pass  # a shared folder without locks
        # Whoever had it may have removed the file in between, and a third may have made a new one.
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            raise BusyError(otherwise)
        yield


def use_compilation_cache() -> None:
    """Keeps compiled code between runs in the user's cache folder, unless JAX has another one."""
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
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
