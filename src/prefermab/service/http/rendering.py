"""Renders pages from templates; links to static files; redirects; coordinates of line charts."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from prefermab.errors import visible
from prefermab.programme.tables.table import format_number
from prefermab.service.auth.access import RULES, Account

FormText = Annotated[str, Form()]
"""A field of a form, as text."""

FormNumber = Annotated[int | None, Form()]
"""A whole number in a field of a form; None without one."""

PAGES = Path(__file__).parents[1] / "pages"
"""The folder of templates and static files."""

STATIC_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}


def _load_static() -> dict[str, tuple[bytes, str, str]]:
    found = {}
    for file in sorted((PAGES / "static").iterdir()):
        if file.suffix in STATIC_MEDIA_TYPES:
            data = file.read_bytes()
            found[file.name] = (
                data,
                STATIC_MEDIA_TYPES[file.suffix],
                hashlib.sha256(data).hexdigest()[:12],
            )
    return found


STATIC = _load_static()
"""Static files by name: bytes, media type and a hash of the content."""


def static(name: str) -> str:
    """The address of a static file. It changes with the content, so browsers may cache the file."""
    return f"/static/{name}?v={STATIC[name][2]}"


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: "" if value is None else visible(value) if type(value) is str else value,
)
TEMPLATES.globals["static"] = static


@dataclasses.dataclass(frozen=True)
class NavigationEntry:
    """An entry of the navigation, shown to users who may open its route."""

    path: str
    name: str
    route: str
    first: bool = False
    """Whether it is always visible; the others are under "More"."""


NAVIGATION = (
    NavigationEntry("/week", "This week", "week_page", first=True),
    NavigationEntry("/record", "Record", "record_page", first=True),
    NavigationEntry("/people", "People", "people_page", first=True),
    NavigationEntry("/what-if", "What if", "what_if_page"),
    NavigationEntry("/groups", "Groups", "groups_page"),
    NavigationEntry("/import", "Import", "import_page"),
    NavigationEntry("/models", "Models", "models_page"),
    NavigationEntry("/audit", "Audit", "audit_page"),
    NavigationEntry("/users", "Users", "users_page"),
)
"""The entries in their order; one whose route has no rule is not shown."""


def navigation(account: Account | None) -> list[NavigationEntry]:
    """The entries that an account may open."""
    rights = frozenset() if account is None else account.rights
    return [entry for entry in NAVIGATION if RULES.get(entry.route, frozenset()) & rights]


TEMPLATES.filters["number"] = format_number
TEMPLATES.tests["alphanumeric"] = str.isalnum


def page(request: Request, template: str, **values: Any) -> HTMLResponse:
    """Renders a page for the signed-in user.

    Args:
        request: The request to answer.
        template: A file in `templates/`.
        **values: The variables of the template.
    """
    account: Account | None = getattr(request.state, "account", None)
    known = {
        "account": account,
        "may": lambda right: account is not None and account.may(right),
        "navigation": navigation(account),
        "path": path_of(request),
        "root": root_of(request),
    }
    return HTMLResponse(TEMPLATES.get_template(template).render({**known, **values}))


def root_of(request: Request) -> str:
    """The prefix of this programme's addresses: /p/NAME, or empty if it is the only one."""
    return request.scope.get("root_path", "")


def path_of(request: Request) -> str:
    """The path of a request, without the programme's prefix."""
    return request.url.path.removeprefix(root_of(request))


def redirect(request: Request, target: str) -> Response:
    """Redirects to another page of the same programme (status 303)."""
    return RedirectResponse(root_of(request) + local(target), 303)


def local(target: str) -> str:
    """The target if it is a path of this server, else "/".

    >>> from prefermab.service.http.rendering import local
    >>> local("/week?page=2"), local("//evil.example"), local("https://evil.example")
    ('/week?page=2', '/', '/')
    """
    plain = target.isprintable() and len(target) <= 2000 and not set("\\ ") & set(target)
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"


CHART_WIDTH, CHART_HEIGHT = 640, 260
LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 56, 16, 14, 36


@dataclasses.dataclass(frozen=True)
class Tick:
    """A value on an axis: its coordinate and its label."""

    at: float
    text: str


@dataclasses.dataclass(frozen=True)
class LineChart:
    """A line chart in coordinates of the picture that a template draws."""

    curves: Mapping[str, str]
    """The points of each curve, as `<polyline>` takes them."""
    dots: Mapping[str, Sequence[tuple[float, float]]]
    across: Sequence[Tick]
    up: Sequence[Tick]
    width: int = CHART_WIDTH
    height: int = CHART_HEIGHT
    left: int = LEFT_MARGIN
    right: int = CHART_WIDTH - RIGHT_MARGIN
    top: int = TOP_MARGIN
    bottom: int = CHART_HEIGHT - BOTTOM_MARGIN


def line_chart(
    across: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    *,
    percent: bool = False,
    whole: bool = False,
) -> LineChart:
    """A chart of curves over the same horizontal values; None leaves a point out.

    Args:
        across: Values on the horizontal axis, rising.
        curves: The values of each curve by its name; the vertical axis begins at 0.
        percent: Whether to label the vertical axis in per cent.
        whole: Whether every horizontal value gets a tick.

    >>> from prefermab.service.http.rendering import line_chart
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
        right = LEFT_MARGIN + (x - low) / span * (CHART_WIDTH - RIGHT_MARGIN - LEFT_MARGIN)
        up = CHART_HEIGHT - BOTTOM_MARGIN - y / top * (CHART_HEIGHT - BOTTOM_MARGIN - TOP_MARGIN)
        return round(right, 1), round(up, 1)

    dots = {
        name: [place(x, y) for x, y in zip(across, curve, strict=True) if y is not None]
        for name, curve in curves.items()
    }
    marked = across if whole else [value for value in ticks(high) if low <= value <= high]
    return LineChart(
        {name: " ".join(f"{x},{y}" for x, y in points) for name, points in dots.items()},
        dots,
        [Tick(place(value, 0)[0], format_number(value)) for value in marked],
        [Tick(place(low, y)[1], f"{y:.0%}" if percent else format_number(y)) for y in steps],
    )


def ticks(most: float) -> list[float]:
    """Round numbers from 0 up to at least `most`.

    >>> from prefermab.service.http.rendering import ticks
    >>> ticks(37)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if most <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(most / 4))
    step = next(size * k for k in (1, 2, 2.5, 5, 10, 20) if most / (size * k) <= 5)
    return [round(step * k, 10) for k in range(math.ceil(most / step - 1e-9) + 1)]
