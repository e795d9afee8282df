"""Pages to manage a programme: models, the audit log, users and tokens."""

import json
from pathlib import Path
from typing import Annotated, Any

import markupsafe
import polars as pl
from fastapi import APIRouter, Form, Request
from markdown_it import MarkdownIt
from starlette.responses import Response

from prefermab.errors import InputError, StorageError, brief, unknown
from prefermab.models.loading import shipped_models
from prefermab.programme.store import lookups, queries
from prefermab.programme.store.audit import newest_entries
from prefermab.programme.store.reader import MODEL_PLACE
from prefermab.service.auth import accounts
from prefermab.service.auth.access import RIGHTS, ROLES, Guarded, account_of
from prefermab.service.http.rendering import FormText, page, redirect
from prefermab.service.work.desk import desk_of
from prefermab.service.work.jobs import UNFINISHED
from prefermab.service.work.plan_requests import facts_of

router = APIRouter(route_class=Guarded, include_in_schema=False)
AUDIT_ROWS_PER_PAGE = 50
"""Rows of the audit log that one page shows."""

MARKDOWN = MarkdownIt("js-default").disable("image")
MARKDOWN.validateLink = lambda url: url.startswith("#")
"""Model cards may come from anybody and hold names from tables, so HTML in them is escaped, and
links lead to other places of the same page only."""


@router.get("/models", name="models_page")
def models_page(request: Request, job: int | None = None) -> Response:
    """The models with their first rounds, the card and evidence of the present one, and a replay,
    also one that is made by a job."""
    if job is None:
        return show_models(request)
    found = desk_of(request).jobs.get(job)
    if found["kind"] != "replay":
        raise InputError(f"job {job} does not make a list again.")
    given, answer = {"round": found["asked"]["round"]}, found["answer"] or {}
    if found["status"] == "done":
        return show_models(request, **given, same=answer)
    if found["status"] in UNFINISHED:
        return show_models(request, **given, doing=found["doing"])
    return show_models(
        request, **given, problem=answer.get("detail") or f"It was {found['status']}."
    )


@router.post("/models", name="replay_round")
def replay_round(request: Request, round: Annotated[int, Form()]) -> Response:
    """Makes the plan of a round again and shows whether it is the same, bit for bit. For a large
    programme this becomes a job."""
    desk = desk_of(request)
    if desk.is_large():
        job = desk.jobs.submit("replay", {"round": round}, account_of(request).name)
        return redirect(request, f"/models?job={job['number']}")
    try:
        plan = desk.programme().replay(round)
    except InputError as error:
        return show_models(request, round, problem=str(error))
    return show_models(request, round, same=facts_of(plan) | {"people": plan.frame.height})


def show_models(request: Request, round: int | None = None, **replayed: Any) -> Response:
    """The page about models."""
    desk = desk_of(request)
    programme = desk.programme()
    with programme.database.reading() as sql:
        models = lookups.models_of(sql)
        place = queries.get_meta(sql, MODEL_PLACE)
    folder = model_folder(place)
    return page(
        request, "models.html", models=models[::-1], round=round,
        plans=programme.plans().filter(pl.col("status") != "superseded").to_dicts()[::-1],
        model=programme.model, place=Path(place).name if place else None,
        card=read_markdown(folder, "README.md"),
        replayed={"same": None, "problem": None, "doing": None} | replayed,
        evidence=read_markdown(folder, "report/README.md"),
    )  # fmt: skip


def model_folder(place: str | None) -> Path | None:
    """The folder of a programme's model; None if it does not exist."""
    folder = None if place is None else shipped_models().get(place, Path(place))
    return folder if folder is not None and folder.is_dir() else None


def read_markdown(folder: Path | None, name: str) -> markupsafe.Markup | None:
    """A Markdown file in a model's folder, as HTML with headings two levels lower; None without
    one."""
    if folder is None or not (folder / name).is_file():
        return None
    with (folder / name).open(encoding="utf-8", errors="replace") as file:
        tokens = MARKDOWN.parse(file.read(400_000))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        if token.type == "table_open":
            token.attrSet("class", "small")
    return markupsafe.Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))


@router.get("/audit", name="audit_page")
def audit_page(
    request: Request, who: str = "", what: str = "", words: str = "", before: str = ""
) -> Response:
    """The audit log, the newest row first, with a filter; rows before the number `before`."""
    return show_audit(request, who, what, words, before)


@router.post("/audit", name="audit_verify")
def audit_verify(request: Request, head: FormText = "") -> Response:
    """Verifies the chain of hashes, and all tables that it covers."""
    try:
        proof = desk_of(request).programme().verify_audit(head.strip() or None)
    except StorageError as error:
        return show_audit(request, broken=str(error))
    return show_audit(request, proof=proof)


def details_in_words(details: Any) -> str:
    """The details of a row of the audit log as text.

    >>> from prefermab.service.pages.manage import details_in_words
    >>> details_in_words({"round": 3, "ticks": {"7": "call, not reached"}})
    'round: 3; ticks: 7: call, not reached'
    """
    if not isinstance(details, dict):
        return str(details)
    return "; ".join(f"{key}: {details_in_words(value)}" for key, value in details.items())


def show_audit(
    request: Request, who: str = "", what: str = "", words: str = "", before: str = "",
    **checked: Any,
) -> Response:  # fmt: skip
    """The page of the audit log. It reads no more rows than it shows, unless words are looked for,
    so a long log takes no longer."""
    first = int(before) if before.isdecimal() and len(before) < 16 else None
    with desk_of(request).records.reading() as sql:
        found = newest_entries(sql, who, what, words.strip(), first, AUDIT_ROWS_PER_PAGE + 1)
        names, total = lookups.names_in_log(sql), lookups.size_of_log(sql)
    rows = [dict(row._mapping) for row in found[:AUDIT_ROWS_PER_PAGE]]
    for row in rows:
        row["details"] = brief(details_in_words(json.loads(row["details"])), 300)
    return page(
        request, "audit.html", rows=rows, names=names, who=who, what=what, words=words,
        newer=first is not None, older=rows[-1]["number"] if len(found) > len(rows) else None,
        total=total, **{"proof": None, "broken": None} | checked,
    )  # fmt: skip


@router.get("/users", name="users_page")
def users_page(request: Request) -> Response:
    """Users with their roles, and tokens."""
    return show_users(request)


@router.post("/users", name="users_invite")
def users_invite(request: Request, name: FormText, role: FormText) -> Response:
    """Adds a user, and shows the link to set their password."""
    desk, account, name = desk_of(request), account_of(request), accounts.check_name(name)
    with desk.records.writing() as sql:
        link = accounts.add_user(sql, name, role, desk.clock())
        desk.note(sql, account.name, "add user", {"user": name, "role": role})
    return show_users(request, one_time=link, for_whom=name)


@router.post("/users/change", name="users_change")
def users_change(request: Request, name: FormText, do: FormText, role: FormText = "") -> Response:
    """Changes a user: `do` is role, sessions (end them), block, allow or link (a new one)."""
    desk, account, link, ended = desk_of(request), account_of(request), None, {}
    with desk.records.writing() as sql:
        if do == "role":
            accounts.change_user(sql, name, role=role)
            done = f"{name} is a {role} now, and has to sign in again."
        elif do == "sessions":
            ended = accounts.end_sessions(sql, name)
            done = f"Ended of {name}: {', '.join(f'{n} {kind}' for kind, n in ended.items())}."
        elif do in ("block", "allow"):
            accounts.change_user(sql, name, active=do == "allow")
            done = f"{name} may {'sign in again' if do == 'allow' else 'not sign in any more'}."
        elif do == "link":
            link, done = accounts.new_link(sql, name, desk.clock()), ""
        else:
            raise unknown("change", do, ("role", "sessions", "block", "allow", "link"))
        details = {"user": name, "change": do} | ({"role": role} if do == "role" else {}) | ended
        desk.note(sql, account.name, "change user", details)
    return show_users(request, done=done, one_time=link, for_whom=name)


@router.post("/users/tokens", name="token_add")
def token_add(
    request: Request,
    name: FormText,
    label: FormText,
    scope: Annotated[list[str] | None, Form()] = None,
    days: FormText = "",
) -> Response:
    """Makes a token, and shows it once."""
    desk, account = desk_of(request), account_of(request)
    if days.strip() and not days.strip().isdecimal():
        raise InputError(f"days must be a whole number, not '{brief(days)}'.")
    lasts = float(days) if days.strip() else None
    with desk.records.writing() as sql:
        secret = accounts.add_token(sql, name, label, scope or (), desk.clock(), lasts)
        details = {"user": name, "label": label, "scopes": sorted(scope or ())}
        desk.note(sql, account.name, "add token", details)
    return show_users(request, secret=secret, for_whom=name)


@router.post("/users/tokens/drop", name="token_drop")
def token_drop(request: Request, number: Annotated[int, Form()]) -> Response:
    """Deletes a token."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        accounts.drop_token(sql, number)
        desk.note(sql, account.name, "drop token", {"token": number})
    return show_users(request, done=f"Token {number} is not valid any more.")


def show_users(request: Request, **messages: Any) -> Response:
    """The page of users and tokens."""
    desk = desk_of(request)
    with desk.records.reading() as sql:
        users, tokens = accounts.all_users(sql), accounts.all_tokens(sql)
    known = {"done": None, "one_time": None, "for_whom": None, "secret": None}
    return page(
        request, "users.html", users=users.to_dicts(), tokens=tokens.to_dicts(), roles=list(ROLES),
        scopes=RIGHTS, address=str(request.base_url).rstrip("/") + desk.settings.root,
        now=desk.clock(),
        days=int(accounts.LINK_LASTS) // 86400, **{**known, **messages},
    )  # fmt: skip
