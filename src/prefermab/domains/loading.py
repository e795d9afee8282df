"""Loads a domain class from a Python file that a user wrote, named as presses.py:Presses.

The file is executed, with its folder last on the import path: load only files that you trust.
"""

import contextlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from prefermab.domains.base import Domain
from prefermab.errors import InputError, unknown


def in_a_file(name: str) -> bool:
    """Whether a name is that of a file, with or without a class.

    Args:
        name: What a user gave as a domain.

    Returns:
        True where the name ends in `.py`, or has a class after that and a colon.

    >>> from prefermab.domains.loading import in_a_file
    >>> in_a_file("presses.py:Presses"), in_a_file("presses.py"), in_a_file("armman")
    (True, True, False)
    """
    return ".py:" in name or name.endswith(".py")


def class_in_file(name: str) -> type[Domain]:
    """The class of a name such as presses.py:Presses; without a class, the only domain of the
    file."""
    path, _, wanted = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    there = _defined_domains(_execute(Path(path)))
    if not there:
        raise InputError(
            f"{path} defines no domain, such as a subclass of FiniteDomain or ContinuousDomain."
        )
    if wanted and wanted not in there:
        raise unknown("domain", wanted, there, of=f" in {path}")
    if not wanted and len(there) > 1:
        raise InputError(
            f"{path} defines the domains {', '.join(there)}: name one, such as "
            f"{path}:{next(iter(there))}."
        )
    return there[wanted or next(iter(there))]


def spelling(domain: Domain) -> str:
    """The name of a domain on the command line: that of a shipped domain, else its file, if known,
    and its class.

    Args:
        domain: Any domain.

    Returns:
        A name such as armman or presses.py:Presses.

    >>> import prefermab as pm
    >>> pm.domains.spelling(pm.domains.Armman())
    'armman'
    """
    kind = type(domain)
    if kind.__module__.startswith("prefermab.domains."):
        return domain.name
    try:
        file = Path(inspect.getfile(kind))
    except (TypeError, OSError):
        file = Path("FILE.py")
    # A class that was defined in a notebook or a console is in no file.
    shown = file.name if file.suffix == ".py" and file.exists() else "FILE.py"
    return f"{shown}:{kind.__name__}"


def _execute(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    # Always the same name: a training that is resumed looks for its domain under it.
    name = f"prefermab_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be read as Python.")
    module = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.append(beside)
    try:
        # A program may read what a command prints, so nothing else goes to standard output.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path} cannot be run: {_describe(error, path)}.") from error
    finally:
        sys.path.remove(beside)
    return module


def _describe(error: BaseException, path: Path) -> str:
    """The error in one line, with the line of the file where it occurred."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    step = error.__traceback__
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename) == path:
            line = step.tb_lineno
        step = step.tb_next
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    where = "" if line is None else f"line {line}: "
    return f"{where}{type(error).__name__}: {said[:200].rstrip('.')}"


def _defined_domains(module: ModuleType) -> dict[str, type[Domain]]:
    """The domain classes that a module itself defines; abstract ones only if it has no others."""
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Domain)
    }
    defined = {name: kind for name, kind in found.items() if kind.__module__ == module.__name__}
    return {name: kind for name, kind in defined.items() if not inspect.isabstract(kind)} or defined
