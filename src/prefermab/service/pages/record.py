"""Pages to record what was done: mark person by person, also on an offline phone; close the round.

Each mark (on pages: a tick) is stored at once (`work/marks.py`). Closing the round turns all marks
into its record. A request to mark a person names the mark that its page showed. If somebody else
has marked the person differently meanwhile, both marks are shown and the user chooses. A mark that
arrives after its round was closed waits for a decision (`work/late.py`).
"""

import datetime
from typing import Annotated, Any

import polars as pl
import sqlalchemy as sa
from fastapi import APIRouter, Form, Request
from starlette.responses import JSONResponse, Response

from prefermab.errors import InputError
from prefermab.programme.store import Planned
from prefermab.service.auth.access import Account, Guarded, account_of
from prefermab.service.auth.database import ROUND_MARKS
from prefermab.service.http.problems import is_for_programs
from prefermab.service.http.rendering import STATIC, FormNumber, FormText, page, redirect
from prefermab.service.pages.week import columns_of
from prefermab.service.work import late as lateness
from prefermab.service.work import marks as marking
from prefermab.service.work.approval import RoundLists
from prefermab.service.work.desk import Desk, Head, as_id, desk_of
from prefermab.service.work.week import Columns, Filter, lines, values_of

router = APIRouter(route_class=Guarded, include_in_schema=False)
RECORD_ROWS_PER_PAGE = 200
"""People on one page: enough for a field worker's list of a week."""

MOST_OTHERS = 2_000
"""People outside the list who are offered in the form below it."""

MARK_DONE, MARK_MISSED, MARK_OTHER, MARK_OPEN = "done", "not reached", "other", "open"


def mark_choice(mark: dict[str, Any], planned: str, passive: str) -> str:
    """The choice in the form that a mark stands for: done, not reached or other.

    >>> from prefermab.service.pages.record import mark_choice
    >>> mark_choice({"action": "call", "reached": False}, "call", "none")
    'not reached'
    """
    if planned == passive or mark["action"] != planned:
        return MARK_OTHER
    return MARK_DONE if mark["reached"] else MARK_MISSED


def describe_mark(mark: dict[str, Any], planned: str, passive: str) -> dict[str, Any]:
    """A mark as values for pages and scripts."""
    at = datetime.datetime.fromtimestamp(mark["at"], datetime.UTC)
    names = ("id", "action", "why", "who", "at")
    return {
        **{name: mark[name] for name in names},
        "what": mark_choice(mark, planned, passive),
        "time": at.strftime("%Y-%m-%d %H:%M UTC"),
    }


def lists_of(desk: Desk, round: int) -> RoundLists:
    """The lists of a round by which staff may work."""
    with desk.records.reading() as sql:
        return RoundLists.read(sql, round)


@router.get("/record", name="record_page")
def record_page(request: Request, at: int = 1, worker: str = "", find: str = "") -> Response:
    """A card for each person on the list, to mark what was done."""
    desk, account = desk_of(request), account_of(request)
    head, frame = desk.week(account)
    lists = lists_of(desk, head.round)
    if frame is None or head.attempt is None or head.attempt not in lists.approved:
        return page(
            request, "record_open.html", head=head, planned=frame is not None, made=desk.clock(),
            late=lateness.all_late(desk, account).height,
        )  # fmt: skip
    plan = desk.planned(head.round, head.attempt)
    columns, wanted = columns_of(desk, plan), Filter(worker, "", find)
    actions = desk.programme().model.action_names
    marks = marks_of(desk, head.round)
    marked = pl.col("id").cast(pl.String).is_in(list(marks))
    chosen = pl.col("list") == "chosen"
    due = wanted.apply(frame, columns).filter(chosen | marked).sort("rank", nulls_last=True)
    pages = max(1, -(-due.height // RECORD_ROWS_PER_PAGE))
    at = min(max(at, 1), pages)
    rows = lines(due.slice((at - 1) * RECORD_ROWS_PER_PAGE, RECORD_ROWS_PER_PAGE), columns)
    for row in rows:
        mark = marks.get(str(row["id"]))
        row["mark"] = mark and describe_mark(mark, row["action"], actions[0])
    ids = set(due["id"].cast(pl.String))
    return page(
        request, "record.html", head=head, rows=rows, at=at, pages=pages, wanted=wanted,
        workers=[] if account.own_only else values_of(frame, columns.worker),
        passive=actions[0], actions=actions, total=due.height,
        done=len(ids & set(marks)), made=desk.clock(), late=lateness.all_late(desk, account).height,
        others=people_to_choose(frame.filter(~(chosen | marked)).head(MOST_OTHERS), columns),
    )  # fmt: skip


def people_to_choose(frame: pl.DataFrame, columns: Columns) -> list[tuple[Any, str]]:
    """Options of a form: for each person the id, and a label with name and id."""
    ids = frame["id"].to_list()
    names = [None] * len(ids) if columns.name is None else frame[columns.name].to_list()
    pairs = zip(ids, names, strict=True)
    return [(who, f"{name} ({who})" if name else str(who)) for who, name in pairs]


def marks_of(desk: Desk, round: int) -> dict[str, dict[str, Any]]:
    """The marks of a round by person."""
    with desk.records.reading() as sql:
        found = marking.get_marks(sql, round)
    return {row["id"]: row for row in found.iter_rows(named=True)}


class Conflict(Exception):  # noqa: N818  # not an error: two users worked at once
    """Another user has marked the same person differently meanwhile."""

    def __init__(self, theirs: dict[str, Any]):
        super().__init__("conflict")
        self.theirs = theirs


@router.post("/record/mark", name="mark_page")
def mark_page(
    request: Request,
    id: FormText,
    round: Annotated[int, Form()],
    what: FormText,
    action: FormText = "",
    why: FormText = "",
    seen: FormText = "",
    at: FormText = "",
    attempt: FormNumber = None,
) -> Response:
    """Stores a mark. `seen` is the time of the mark that the page showed; `at` is the time of the
    new one, if a script sends it later; `attempt` is the number of the list on the page."""
    desk, account, when = desk_of(request), account_of(request), read_time(at)
    plan = desk.planned(round, lists_of(desk, round).list_of_tick(attempt, when))
    programme = desk.programme()
    actions, planned = programme.model.action_names, planned_action(plan, as_id(id, programme.ids))
    given = read_mark(id, what, action, why, when, planned, actions)
    lists = lateness.check_by_lists(desk, account, round, [given], plan.attempt)
    if lists.ticks_wait:
        return _mark_late(request, desk, account, lists, given)
    try:
        kept = store_mark(desk, account, lists, given, seen, actions[0])
    except Conflict as conflict:
        theirs = describe_mark(conflict.theirs, planned, actions[0])
        detail = f"{theirs['who']} has recorded something else meanwhile."
        if is_for_programs(request):
            return JSONResponse({"detail": detail, "theirs": theirs}, 409)
        answer = page(
            request, "conflict.html", round=round, attempt=plan.attempt, id=id, theirs=theirs,
            planned=planned, mine={"what": what, "action": action, "why": why},
        )  # fmt: skip
        answer.status_code = 409
        return answer
    if is_for_programs(request):
        return JSONResponse({"mark": kept and describe_mark(kept, planned, actions[0])})
    return redirect(request, f"/record#p-{id}" if id.isalnum() else "/record")


def _mark_late(
    request: Request, desk: Desk, account: Account, lists: RoundLists, given: dict[str, Any]
) -> Response:
    """Stores a mark as a late mark."""
    lateness.add_late(desk, account, lists, [given])
    # Looked up, because the mark may have been sent before and its answer lost.
    with desk.records.reading() as sql:
        waiting = lateness.get_late(sql, desk.programme().model.action_names[0])
    waits = waiting.filter(round=lists.round, id=given["id"]).height
    if not is_for_programs(request):
        return redirect(request, "/record")
    late_note = (
        "it came after the round was closed: a planner decides whether the record is corrected."
        if lists.is_closed
        else "it came after the list was changed: a planner decides whether it counts."
    )
    return JSONResponse({"mark": None, "late": late_note if waits else None})


def planned_action(plan: Planned, person: str | int) -> str:
    """The planned action of a person; raises if the plan does not have them."""
    found = plan.frame.filter(pl.col("id") == person)["action"]
    if not len(found):
        raise InputError(f"there is no {person} in the plan of round {plan.round}.")
    return found[0]


def read_time(at: str) -> float | None:
    """The time of a mark from the field of a form; None without one."""
    try:
        return float(at) if at else None
    except ValueError:
        raise InputError(f"at must be seconds since 1970, not '{at[:40]}'.") from None


def read_mark(
    id: str, what: str, action: str, why: str, at: float | None, planned: str, actions: Any
) -> dict[str, Any]:
    """A mark from the fields of a form."""
    if what not in (MARK_DONE, MARK_MISSED, MARK_OTHER, MARK_OPEN):
        raise InputError("choose what was done: done, not reached or something else.")
    if what in (MARK_DONE, MARK_MISSED) and planned == actions[0]:
        raise InputError(f"{id} is not on the list: say what was done instead, and why.")
    if what == MARK_OTHER and (not action or not why.strip()):
        raise InputError("if something else was done, say what, and why.")
    chosen = {MARK_DONE: planned, MARK_MISSED: planned, MARK_OTHER: action, MARK_OPEN: None}[what]
    return {"id": id, "action": chosen, "reached": what != MARK_MISSED, "why": why, "at": at}


def store_mark(
    desk: Desk, account: Account, lists: RoundLists, given: dict[str, Any], seen: str, passive: str
) -> dict[str, Any] | None:
    """Stores a mark and returns the valid one; raises `Conflict` if another user has marked the
    person differently since the time `seen`."""
    with desk.records.writing() as sql:
        lists.check_same(sql)
        lateness.settle_marks(desk, sql, passive)
        old = get_mark(sql, lists.round, given["id"])
        if old is not None and old["who"] != account.name and not is_time(seen, old["at"]):
            if is_same(old, given):
                return old
            raise Conflict(old)
        stored = lateness.put_ticks(desk, account, lists, sql, [given])
        kept = get_mark(sql, lists.round, given["id"])
        if not stored and kept is not None and not is_same(kept, given):
            raise Conflict(kept)
    return kept


def get_mark(sql: sa.Connection, round: int, person: str) -> dict[str, Any] | None:
    """The mark of a person; None if there is none."""
    columns = ROUND_MARKS.c["action", "reached", "why", "at"]
    rows = sa.select(ROUND_MARKS.c.person.label("id"), ROUND_MARKS.c.name.label("who"), *columns)
    found = sql.execute(
        rows.where(ROUND_MARKS.c.round == round, ROUND_MARKS.c.person == person)
    ).one_or_none()
    return None if found is None else dict(found._mapping)


def is_time(text: str, at: float) -> bool:
    """Whether a text from a form or a script is the time `at`."""
    try:
        return float(text) == at
    except ValueError:
        return False


def is_same(mark: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether two marks say the same."""
    return (mark["action"], mark["reached"]) == (given["action"], given["reached"])


@router.get("/record/close", name="close_page")
def close_page(request: Request) -> Response:
    """Shows what would be recorded, with the form to close the round."""
    desk = desk_of(request)
    head, plan, columns = _current(desk)
    actions, marks = desk.programme().model.action_names, marks_of(desk, head.round)
    counts = dict.fromkeys((MARK_DONE, MARK_MISSED, MARK_OTHER), 0)
    rows = plan.frame.filter(
        (pl.col("list") == "chosen") | pl.col("id").cast(pl.String).is_in(list(marks))
    ).sort("rank", nulls_last=True)
    otherwise, left = [], []
    for line in lines(rows, columns):
        mark = marks.get(str(line["id"]))
        if mark is None:
            left.append(line)
            continue
        line["mark"] = describe_mark(mark, line["action"], actions[0])
        counts[line["mark"]["what"]] += 1
        if line["mark"]["what"] == MARK_OTHER:
            otherwise.append(line)
    return page(
        request, "close.html", head=head, counts=counts, otherwise=otherwise, left=left[:50],
        n_left=len(left), by_worker=_by_worker(left),
        late=lateness.all_late(desk, account_of(request)).height,
    )  # fmt: skip


def _by_worker(left: list[dict[str, Any]]) -> str:
    names = [line["worker"] for line in left if line["worker"]]
    counts = {name: names.count(name) for name in sorted(set(names))}
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def _current(desk: Desk) -> tuple[Head, Planned, Columns]:
    head = desk.head()
    lists_of(desk, head.round).check()
    plan = lateness.plan_in_force(desk, head.round)
    return head, plan, columns_of(desk, plan)


@router.post("/record/close", name="close_round")
def record_close(
    request: Request,
    round: Annotated[int, Form()],
    rest: FormText = "",
    over_budget: FormText = "",
    why: FormText = "",
) -> Response:
    """Records the round from its marks, and closes it."""
    desk, account = desk_of(request), account_of(request)
    head, plan, _ = _current(desk)
    if round != head.round:
        raise InputError(f"round {round} is not the current one, which is {head.round}.")
    lateness.close_by_marks(
        desk, account, plan, rest=rest, over_budget=bool(over_budget), why=why.strip() or None
    )
    return redirect(request, "/week?said=closed")


@router.get("/sw.js", name="service_worker")
def service_worker() -> Response:
    """The service worker, which opens the record page without a connection."""
    data, kind, _ = STATIC["sw.js"]
    return Response(data, media_type=kind, headers={"cache-control": "no-cache"})
