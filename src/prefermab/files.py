"""Files that are whole or not there: nothing already written is lost or half-written."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from prefermab.errors import InputError


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
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from None
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
