"""A programme that several people run together: pages and an API over `Programme`.

`prefermab serve calls.db` starts it. This is the outermost layer, like `cli`: it may import
everything, and only `cli` imports it.

| file | what |
|---|---|
| `settings.py` | the settings of a server, and how worker processes get them |
| `database.py` | tables of users, sessions, tokens, jobs, marks; transactions |
| `accounts.py`, `signing.py` | users, links to set a password, tokens; sign-in and sessions |
| `access.py` | who may call which route: one table, `RULES` |
| `guards.py` | hosts, origins, sizes and headers of every request |
| `incoming.py` | what the fields of a request may hold |
| `desk.py` | access to the programme: one connection a thread, the newest lists in memory |
| `marks.py` | marks: what was done with one person in the current round |
| `approval.py` | approval of lists: by which list something may be recorded |
| `late.py`, `pages_late.py` | marks that arrive after their round was closed or list changed |
| `jobs.py`, `worker.py` | long tasks: a queue, and the process of each |
| `exchange.py`, `problems.py` | tables in requests and answers; error answers |
| `api.py`, `api_work.py`, `api_admin.py` | routes under /api/v1 |
| `pages.py`, `rendering.py`, `templates/`, `static/` | sign-in pages, templates, charts |
| `planning.py` | the form for a plan; plans made from requests |
| `week.py`, `pages_week.py` | this week: list, facts shown of a person; change, approve |
| `changes.py` | changes of the list by hand, by several planners at once |
| `pages_record.py`, `static/record.js`, `static/sw.js` | visits are ticked off, also offline |
| `pages_people.py` | people, and one person round by round |
| `pages_import.py`, `uploads.py` | import of tables, with a preview |
| `pages_insight.py`, `pages_manage.py` | what-if, groups; models, audit log, users |
| `machines.py` | health checks and metrics |
| `demo.py` | the made-up programme of `serve --demo` |
| `app.py` | builds the application from all of these |
| `several.py` | several programmes on one server, and the page that lists them |

**How a page is added.** Three places:

1. A function in `pages.py`, or in a file of its own with `router = APIRouter(route_class=Guarded)`
   that `app.create_app` includes::

       @router.get("/who", name="who_page")
       def who(request: Request) -> Response:
           desk, account = desk_of(request), account_of(request)
           return page(request, "who.html", people=desk.visible_rows(desk.roster(), account))

   Functions are plain (`def`, not `async def`), so they may block: each runs in a thread with its
   own open `Programme` (`desk.programme()`). Raise `InputError` for wrong input: its sentence is
   shown on a page, or sent as problem+json under /api.
2. A line in `RULES` in `access.py`: the route's name and the rights that allow calling it. A route
   without a rule answers 403, and `tests/test_service_security.py` fails.
3. A template in `templates/` that begins with `{% extends "base.html" %}`. All values are
   escaped. Scripts and styles are files in `static/`, linked by `static('name.js')`; the
   Content-Security-Policy blocks inline ones, `style=` and `onclick=`.

A form posts to a route with `@router.post`. It needs no CSRF token, because `guards.py` refuses
requests from other sites. After a change, answer with `redirect(request, "/week")`. In templates
`account` is the signed-in user (None if nobody is signed in), and `may('plan')` says whether they
have a right. Links begin with `{{ root }}`, because a programme may be served under /p/NAME.
"""

from prefermab.service.app import create_app
from prefermab.service.settings import Settings

__all__ = ["Settings", "create_app"]
