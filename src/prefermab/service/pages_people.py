"""Pages of people: everyone who takes part, and one person's time in the programme."""

from urllib.parse import urlencode

import sqlalchemy as sa
from fastapi import APIRouter, Request
from starlette.responses import Response

from prefermab.programme.store.schema import PLANS
from prefermab.service.access import Guarded, account_of
from prefermab.service.desk import as_id, desk_of
from prefermab.service.forms import PlanForm
from prefermab.service.rendering import page
from prefermab.service.timeline import RECENT, chart_of, timeline_of
from prefermab.service.week import NAMES, PHONES, Columns, Filter, is_phone, lines, values_of

router = APIRouter(route_class=Guarded, include_in_schema=False)
ON_A_PAGE = 50
"""People that one page shows."""


@router.get("/people", name="people_page")
def people_page(
    request: Request, at: int = 1, worker: str = "", group: str = "", find: str = ""
) -> Response:
    """Everyone who takes part, to find one of them."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.reading() as sql:
        last = sa.select(PLANS.c.asked).order_by(PLANS.c.round.desc(), PLANS.c.attempt.desc())
        form = PlanForm.from_asked(sql.execute(last.limit(1)).scalar())
    everyone = desk.own(desk.roster(), account)
    columns = Columns.of(everyone, desk.settings.worker_column, form.group_column or None)
    wanted = Filter(worker, group, find)
    found = wanted.apply(everyone, columns)
    pages = max(1, -(-found.height // ON_A_PAGE))
    at = min(max(at, 1), pages)
    return page(
        request, "people.html", rows=lines(found.slice((at - 1) * ON_A_PAGE, ON_A_PAGE), columns),
        found=found.height, total=everyone.height, at=at, pages=pages, wanted=wanted,
        columns=columns, groups=values_of(everyone, columns.group),
        workers=[] if account.own_only else values_of(everyone, columns.worker),
        query=urlencode({name: value for name, value in vars(wanted).items() if value}),
    )  # fmt: skip


@router.get("/people/person", name="person_page")
def person_page(request: Request, id: str, all: bool = False) -> Response:
    """A person's time in the programme."""
    desk = desk_of(request)
    person = as_id(id, desk.programme().ids)
    desk.check_own(person, account_of(request))
    rounds = timeline_of(desk, person, all_rounds=all)
    details = desk.details(person)
    named = {name.lower(): name for name in details}
    name, phone = (
        next((details[named[one]] for one in known if one in named), None)
        for known in (NAMES, PHONES)
    )
    phone = phone if is_phone(phone) else None
    shown = {key: value for key, value in details.items() if not isinstance(value, float)}
    return page(
        request, "person.html", id=person, name=name, phone=phone, details=shown, rounds=rounds,
        chart=chart_of(rounds, desk.programme().model), older=not all and len(rounds) > RECENT + 1,
        now=desk.head().round, passive=desk.programme().model.action_names[0],
        numbers={key: value for key, value in details.items() if isinstance(value, float)},
    )  # fmt: skip
