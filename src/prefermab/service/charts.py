"""Small charts as SVG: where points, ticks and labels of a line chart stand."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from prefermab.programme.tables import format_number

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 36


@dataclasses.dataclass(frozen=True)
class Tick:
    """A value on an axis: where it stands, and how it reads."""

    at: float
    text: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """A line chart in coordinates of its picture; a template draws it."""

    curves: Mapping[str, str]
    """The points of each curve, as `<polyline>` takes them."""
    dots: Mapping[str, Sequence[tuple[float, float]]]
    across: Sequence[Tick]
    up: Sequence[Tick]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def line_chart(
    across: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    *,
    percent: bool = False,
    whole: bool = False,
) -> Chart:
    """The chart of curves over the same values across; None leaves a point out.

    Args:
        across: Values on the horizontal axis, rising.
        curves: For each name its values on the vertical axis, which begins at 0.
        percent: Whether the vertical axis reads in per cent.
        whole: Whether every value across has a tick of its own.

    >>> from prefermab.service.charts import line_chart
    >>> line_chart([0, 10], {"gain": [0.0, 5.0]}).curves["gain"]
    '56.0,224.0 624.0,14.0'
    """
    most = max((value for curve in curves.values() for value in curve if value is not None),
               default=1.0)  # fmt: skip
    steps = ticks(most)
    top = max(steps[-1], most) or 1.0
    low, high = across[0], across[-1]
    span = (high - low) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - low) / span * (WIDTH - RIGHT - LEFT)
        up = HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)
        return round(right, 1), round(up, 1)

    dots = {
        name: [place(x, y) for x, y in zip(across, curve, strict=True) if y is not None]
        for name, curve in curves.items()
    }
    marked = across if whole else [value for value in ticks(high) if low <= value <= high]
    return Chart(
        {name: " ".join(f"{x},{y}" for x, y in points) for name, points in dots.items()},
        dots,
        [Tick(place(value, 0)[0], format_number(value)) for value in marked],
        [Tick(place(low, y)[1], f"{y:.0%}" if percent else format_number(y)) for y in steps],
    )


def ticks(most: float) -> list[float]:
    """Round numbers from 0 that go on to `most` at least.

    >>> from prefermab.service.charts import ticks
    >>> ticks(37)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if most <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(most / 4))
    step = next(size * k for k in (1, 2, 2.5, 5, 10, 20) if most / (size * k) <= 5)
    return [round(step * k, 10) for k in range(math.ceil(most / step - 1e-9) + 1)]
