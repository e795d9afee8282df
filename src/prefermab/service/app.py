"""The web application: puts routes, guards and error handlers together."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from fastapi import FastAPI

import prefermab
from prefermab.service import (
    api,
    api_admin,
    api_work,
    machines,
    pages,
    pages_import,
    pages_insight,
    pages_late,
    pages_manage,
    pages_people,
    pages_record,
    pages_week,
)
from prefermab.service.database import Records
from prefermab.service.desk import Desk
from prefermab.service.guards import Guards
from prefermab.service.problems import HANDLERS
from prefermab.service.settings import Clock, Settings

ROUTE_MODULES = (
    pages,
    pages_week,
    pages_record,
    pages_late,
    pages_people,
    pages_import,
    pages_insight,
    pages_manage,
    machines,
    api,
    api_work,
    api_admin,
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
    app.add_middleware(Guards, settings=settings, count=machines.counter_of(settings))
    return app
