"""A programme that several people run together: pages and an API over `Programme`.

`prefermab serve calls.db` starts it. This is the outermost layer, like `cli`: it may import
everything, and nothing but `cli` imports it.

| file | what |
|---|---|
| `settings.py` | what a server is told when it starts |
| `database.py` | tables of users, sessions, tokens, jobs, marks; transactions |
| `accounts.py`, `signing.py` | users, links to set a password, tokens; sign-in and sessions |
| `access.py` | who may call which route: one table, `RULES` |
| `guards.py` | hosts, origins, sizes and headers of every request |
| `desk.py` | the programme itself: one open in each thread, the newest list kept in memory |
| `marks.py` | what was done so far in the current round, person by person |
| `late.py`, `pages_late.py` | ticks that came after their round was closed |
| `jobs.py`, `worker.py` | long work in a process of its own |
| `exchange.py`, `problems.py` | tables and errors on their way out and in |
| `api.py`, `api_people.py`, `api_work.py` | routes under /api/v1 |
| `pages.py`, `rendering.py`, `templates/`, `static/` | pages for people, charts |
| `planning.py` | the form for a plan, and plans as requests ask for them |
| `week.py`, `pages_week.py` | this week: list, changes by hand, approval |
| `pages_record.py`, `static/record.js`, `static/sw.js` | the record, also without a connection |
| `pages_people.py` | people, and one person round by round |
| `app.py` | puts all of it together |
| `several.py` | several programmes on one server, and the page that lists them |

**How a page is added.** Three places:

1. A function in `pages.py`, or in a file of its own with `router = APIRouter(route_class=Guarded)`
   that `app.create_app` includes::

       @router.get("/who", name="who_page")
       def who(request: Request) -> Response:
           desk, account = desk_of(request), account_of(request)
           return page(request, "who.html", people=desk.people_of(account))

   Functions are plain (`def`): they run in a thread that has its own open `Programme`
   (`desk.programme()`), and may block. Raise `InputError` for wrong input: people get its sentence
   on a page, or as problem+json under /api.
2. A line in `RULES` in `access.py`: the route's name and the rights that open it. A route without a
   rule answers 403, and `tests/test_service_security.py` fails.
3. A template in `templates/` that begins with `{% extends "base.html" %}`. Everything is escaped.
   Scripts and styles are files in `static/`, named by `static('name.js')`; inline ones, `style=`
   and `onclick=` are refused by the Content-Security-Policy.

A form sends to a route with `@router.post`: it needs no token, since `guards.py` refuses requests
that come from another site. After a change answer with `redirect(request, "/week")`. In templates
`account` is who is signed in (None before), `may('plan')` whether they have a right; links begin
with `{{ root }}`, since a programme may stand under /p/NAME.
"""

from prefermab.service.app import create_app
from prefermab.service.settings import Settings

__all__ = ["Settings", "create_app"]
