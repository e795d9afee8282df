"""Routes for monitoring: health checks, and metrics for Prometheus."""

import os
from typing import Any

import prometheus_client as prometheus
import sqlalchemy as sa
from fastapi import APIRouter, Request
from prometheus_client import multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.responses import Response

from prefermab.service.auth.access import Guarded
from prefermab.service.auth.database import JOBS, SESSIONS
from prefermab.service.auth.settings import Settings
from prefermab.service.http.guards import Count
from prefermab.service.work.desk import Desk, desk_of
from prefermab.service.work.jobs import JOB_KINDS

PROMETHEUS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which worker processes add up their counts."""

router = APIRouter(route_class=Guarded, tags=["health"])
REQUESTS = prometheus.Counter(
    "prefermab_requests", "Requests by route and status.", ["route", "status"], registry=None
)
REQUEST_SECONDS = prometheus.Histogram(
    "prefermab_request_seconds", "How long requests took.", ["route"], registry=None,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)  # fmt: skip


def counter_of(settings: Settings) -> Count:
    """A function that counts the answered requests of a programme."""

    def count(route: str, status: int, seconds: float) -> None:
        named = f"{settings.root}/{route}"
        REQUESTS.labels(named, str(status)).inc()
        REQUEST_SECONDS.labels(named).observe(seconds)

    return count


class ProgrammeCounts:
    """The request counts of one programme only: whoever may read them may not see other
    programmes."""

    def __init__(self, counted: prometheus.CollectorRegistry, settings: Settings):
        self.counted, self.start = counted, f"{settings.root}/"

    def collect(self) -> Any:
        """Yields the counts, for Prometheus."""
        for family in self.counted.collect():
            kept = Metric(family.name, family.documentation, family.type)
            for one in family.samples:
                route = one.labels.get("route", "")
                if route.startswith(self.start) and "/" not in route.removeprefix(self.start):
                    named = {**one.labels, "route": route.removeprefix(self.start)}
                    kept.samples.append(one._replace(labels=named))
            yield kept


class DatabaseFigures:
    """Figures from the database; they are the same in every process."""

    def __init__(self, desk: Desk):
        self.desk = desk

    def collect(self) -> Any:
        """Yields the figures, for Prometheus."""
        head, people, now = self.desk.head(), self.desk.count_people(), self.desk.clock()
        with self.desk.records.reading() as sql:
            counts = sa.select(JOBS.c.kind, JOBS.c.status, sa.func.count()).group_by(
                JOBS.c.kind, JOBS.c.status
            )
            jobs = {(kind, status): number for kind, status, number in sql.execute(counts)}
            fresh = SESSIONS.c.seen > now - self.desk.settings.idle
            sessions = sql.execute(sa.select(sa.func.count()).where(fresh)).scalar_one()
        yield GaugeMetricFamily("prefermab_round", "The current round.", head.round)
        planned = head.attempt is not None
        yield GaugeMetricFamily("prefermab_planned", "Whether it is planned.", float(planned))
        yield GaugeMetricFamily("prefermab_people", "People who take part.", people)
        yield GaugeMetricFamily("prefermab_sessions", "Sessions that may go on.", sessions)
        family = GaugeMetricFamily("prefermab_jobs", "Jobs.", labels=["kind", "status"])
        for kind in JOB_KINDS:
            for status in ("waiting", "running", "done", "failed", "cancelled", "lost"):
                family.add_metric([kind, status], jobs.get((kind, status), 0))
        yield family


@router.get("/api/v1/health", name="live")
def live() -> dict[str, Any]:
    """Answers as long as the process is alive."""
    return {"status": "ok"}


@router.get("/api/v1/health/ready", name="ready")
def ready(request: Request) -> dict[str, Any]:
    """Answers if the database can be read."""
    return {"status": "ok", "round": desk_of(request).head().round}


@router.get("/metrics", name="metrics")
def metrics(request: Request) -> Response:
    """Metrics for Prometheus: requests of all worker processes, and the state of the programme."""
    counted, registry = prometheus.CollectorRegistry(), prometheus.CollectorRegistry()
    if PROMETHEUS_FOLDER in os.environ:
        multiprocess.MultiProcessCollector(counted)
    else:
        counted.register(REQUESTS)
        counted.register(REQUEST_SECONDS)
    desk = desk_of(request)
    registry.register(ProgrammeCounts(counted, desk.settings))
    registry.register(DatabaseFigures(desk))
    return Response(prometheus.generate_latest(registry), media_type=prometheus.CONTENT_TYPE_LATEST)
