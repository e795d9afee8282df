"""A programme that several people run together: pages and an API over `Programme`.

`prefermab serve calls.db` starts it. This is the outermost layer, like `cli`: it may import
everything, and only `cli` imports it.

| folder | what |
|---|---|
| `auth` | users, sign-in and sessions; who may call which route (`access.py`); tables, settings |
| `http` | guards of every request, error answers, tables in bodies, templates, charts |
| `work` | the programme of a request (`desk`), plans, this week, marks, uploads, jobs |
| `pages` | web pages, one file each, with `templates` and `static` |
| `api` | routes under /api/v1; health checks and metrics |

`app.py` builds the application from all of these, `several.py` one for several programmes.
`migrations` has the scripts that make the tables, `clinic` the model of `serve --demo`.

**How a page is added.** Three places:

1. A function in a file of `pages`, with `router = APIRouter(route_class=Guarded)`, that
   `app.create_app` includes::

       @router.get("/who", name="who_page")
       def who(request: Request) -> Response:
           desk, account = desk_of(request), account_of(request)
           return page(request, "who.html", people=desk.visible_rows(desk.roster(), account))

   Functions are plain (`def`, not `async def`), so they may block: each runs in a thread with its
   own open `Programme` (`desk.programme()`). Raise `InputError` for wrong input: its sentence is
   shown on a page, or sent as problem+json under /api.
2. A line in `RULES` in `auth/access.py`: the route's name and the rights that allow calling it. A
   route without a rule answers 403, and `tests/service/test_attacks.py` fails.
3. A template in `pages/templates/` that begins with `{% extends "base.html" %}`. All values are
   escaped. Scripts and styles are files in `pages/static/`, linked by `static('name.js')`; the
   Content-Security-Policy blocks inline ones, `style=` and `onclick=`.

A form posts to a route with `@router.post`. It needs no CSRF token, because `guards.py` refuses
requests from other sites. After a change, answer with `redirect(request, "/week")`. In templates
`account` is the signed-in user (None if nobody is signed in), and `may('plan')` says whether they
have a right. Links begin with `{{ root }}`, because a programme may be served under /p/NAME.
"""

from prefermab.service.app import create_app
from prefermab.service.auth.settings import Settings

__all__ = ["Settings", "create_app"]
