"""Metrics as TensorBoard event files (extra `tensorboard`)."""

from pathlib import Path

import polars as pl

from prefermab.errors import InputError


def check_events() -> None:
    """Found out before the work."""
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        raise InputError(
            "event files need tensorboardX: pip install 'prefermab[tensorboard]'."
        ) from None


def write_events(history: pl.DataFrame, folder: Path) -> None:
    """One scalar for each metric, by the number of the epoch (the first column)."""
    check_events()
    from tensorboardX import SummaryWriter

    count, *metrics = [name for name in history.columns if name != "seed"]
    try:
        with SummaryWriter(str(folder)) as writer:
            for row in history.iter_rows(named=True):
                for name in metrics:
                    writer.add_scalar(name, row[name], row[count])
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}.") from None
