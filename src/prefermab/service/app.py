"""The web application: puts routes, guards and error handlers together."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from fastapi import FastAPI

import prefermab
from prefermab.service.api import admin, health, programme, work
from prefermab.service.auth.database import Records
from prefermab.service.auth.settings import Clock, Settings
from prefermab.service.http.guards import Guards
from prefermab.service.http.problems import HANDLERS
from prefermab.service.pages import importing, insight, late, manage, people, record, sign_in, week
from prefermab.service.work.desk import Desk

ROUTE_MODULES = (
    sign_in,
    week,
    record,
    late,
    people,
    importing,
    insight,
    manage,
    health,
    programme,
    work,
    admin,
)
"""The modules that define routes."""

THREADS = 8
"""Requests that one process handles at the same time; each thread has its own open programme."""


def create_app(settings: Settings, *, clock: Clock = time.time, model: Any = None) -> FastAPI:
    """The application that serves a programme.

    Args:
        settings: Which programme to serve, and how.
        clock: Returns the time in seconds since 1970.
        model: The model of the programme; by default the one stored with it.

    Returns:
        An ASGI application, for uvicorn or Starlette's test client.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        app.state.desk.close()

    app = FastAPI(
        title="prefermab", version=prefermab.__version__, lifespan=lifespan,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        exception_handlers=HANDLERS,
    )  # fmt: skip
    for part in ROUTE_MODULES:
        app.include_router(part.router)
    app.state.desk = Desk(settings, Records(settings.place, settings.wait), clock, model)
    app.state.identify = app.state.desk.sign_ins.identify
    app.add_middleware(Guards, settings=settings, count=health.counter_of(settings))
    return app
