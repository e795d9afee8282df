"""What machines ask: whether the server lives, whether it can work, and figures to watch."""

from typing import Any

from fastapi import APIRouter, Request

from prefermab.service.access import Guarded
from prefermab.service.desk import desk_of

router = APIRouter(prefix="/api/v1/health", route_class=Guarded, tags=["health"])


@router.get("", name="live")
def live() -> dict[str, Any]:
    """Answers as long as the process lives."""
    return {"status": "ok"}


@router.get("/ready", name="ready")
def ready(request: Request) -> dict[str, Any]:
    """Answers if the database can be read."""
    return {"status": "ok", "round": desk_of(request).head().round}
