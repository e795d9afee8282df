"""Pages from templates, links to static files, and redirects within this server."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from prefermab.errors import visible
from prefermab.programme.tables import format_number
from prefermab.service.access import RULES, Account

HERE = Path(__file__).parent
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}


def _load_static() -> dict[str, tuple[bytes, str, str]]:
    found = {}
    for file in sorted((HERE / "static").iterdir()):
        if file.suffix in KINDS:
            data = file.read_bytes()
            found[file.name] = (data, KINDS[file.suffix], hashlib.sha256(data).hexdigest()[:12])
    return found


STATIC = _load_static()
"""Static files by name: bytes, kind and a mark of their content."""


def static(name: str) -> str:
    """The address of a static file; it changes with the file, so that browsers may keep it."""
    return f"/static/{name}?v={STATIC[name][2]}"


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: "" if value is None else visible(value) if type(value) is str else value,
)
TEMPLATES.globals["static"] = static


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the navigation: shown to those whom `RULES` lets open the route."""

    path: str
    name: str
    route: str
    first: bool = False
    """Always in sight; the others are behind "More"."""


NAVIGATION = (
    Entry("/week", "This week", "week_page", first=True),
    Entry("/record", "Record", "record_page", first=True),
    Entry("/people", "People", "people_page", first=True),
    Entry("/what-if", "What if", "what_if_page"),
    Entry("/groups", "Groups", "groups_page"),
    Entry("/import", "Import", "import_page"),
    Entry("/models", "Models", "models_page"),
    Entry("/audit", "Audit", "audit_page"),
    Entry("/users", "Users", "users_page"),
)
"""Pages in the order of the navigation; one whose route has no rule yet is not shown."""


def navigation(account: Account | None) -> list[Entry]:
    """The pages that somebody may open."""
    rights = frozenset() if account is None else account.rights
    return [entry for entry in NAVIGATION if RULES.get(entry.route, frozenset()) & rights]


TEMPLATES.filters["number"] = format_number
TEMPLATES.tests["match_plain"] = str.isalnum


def page(request: Request, template: str, **values: Any) -> HTMLResponse:
    """A page for whoever is signed in.

    Args:
        request: The request that it answers.
        template: A file in `templates/`.
        **values: What the template names.
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
    """Where the addresses of the programme that answers begin."""
    return request.scope.get("root_path", "")


def path_of(request: Request) -> str:
    """The path that a request asks for, within its programme."""
    return request.url.path.removeprefix(root_of(request))


def redirect(request: Request, target: str) -> Response:
    """Sends the browser to another page of the same programme, after a change."""
    return RedirectResponse(root_of(request) + local(target), 303)


def local(target: str) -> str:
    """A path of this server; anything that leads elsewhere becomes the first page.

    >>> from prefermab.service.rendering import local
    >>> local("/week?page=2"), local("//evil.example"), local("https://evil.example")
    ('/week?page=2', '/', '/')
    """
    plain = target.isprintable() and "\\" not in target and " " not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"
