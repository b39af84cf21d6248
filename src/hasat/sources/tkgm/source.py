"""Declare the source `tkgm`: its dataset, its scan job and what it adds to the platform."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from hasat.errors import OutOfQuotaError, UsageError
from hasat.feed.dataset import Dataset
from hasat.fetch import RequestContext
from hasat.jobs import Job, Outcome, RunContext
from hasat.messages import msg
from hasat.settings import Settings, types
from hasat.sources.registry import Source, Tool, ToolContext, Traffic
from hasat.sources.tkgm.scan.scan_request import Quality
from hasat.store import Store

SOURCE = "tkgm"

PARCELS = Dataset("parcels", SOURCE, "Cadastral parcels, as GeoJSON features")

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric

    from hasat.sim import Simulator


NAME = "tkgm_scan"
LANE = "daily"


def lacks(settings: Settings) -> str | None:
    """What must be set before parcels can be asked for."""
    if settings.tkgm.workers_file is None:
        return msg("TKGM has no endpoints to ask: name your workers.json in tkgm.workers_file.")
    return None


async def run(context: RunContext) -> Outcome:
    """Scan `area`, a box or GeoJSON; `quality`, `max_queries` and `removals` as in the command."""
    # Whoever lists jobs need not load what works with geometry.
    from hasat.sources.tkgm.registry.client import registry
    from hasat.sources.tkgm.scan.progress import course_told, note_of
    from hasat.sources.tkgm.scan.runner import Course, Scan

    workers = context.settings.tkgm.workers_file
    if workers is None:
        raise UsageError(
            msg("There are no endpoints to ask."),
            remedy=msg("Name your workers.json in tkgm.workers_file."),
        )
    wish = _wish(context.params)
    async with registry(context.store, context.settings, workers, waiting=context.waiting) as asked:
        counted = 0

        async def tell(course: Course) -> None:
            nonlocal counted
            context.count_requests(asked.requests - counted)
            counted = asked.requests
            await context.progress(course.asked, course.questions, note_of(course))

        scan = Scan(
            context.store,
            asked,
            wish,
            RequestContext(LANE, NAME, context.run_id),
            tell,
            removals=context.params.get("removals") or "hold",
        )
        kind = "done"
        message: str | None = None
        try:
            course = await scan.run()
            if not course.complete:
                message = msg("Stopped at max_queries: the next run with the same area goes on.")
        except OutOfQuotaError as error:
            kind, message = "out_of_quota", error.message
            course = await scan.course()
        context.count_requests(asked.requests - counted)
    return Outcome(
        kind,  # type: ignore[arg-type]
        rows_changed=course.changes.total,
        detail=course_told(course),
        message=message,
    )


def _wish(params: Any) -> Any:
    from hasat.sources.tkgm.geometry import area_of
    from hasat.sources.tkgm.scan.scan_request import Wish

    if not params.get("area"):
        raise UsageError(
            msg("Which area?"),
            remedy=msg("Give the parameter area: west,south,east,north in degrees, or GeoJSON."),
        )
    quality: Quality = params.get("quality") or "standard"
    return Wish(area_of(params["area"]), quality, max_questions=params.get("max_queries"))


SCAN = Job(
    NAME,
    run,
    "Finds all parcels of an area; goes on where it was when the quota ended.",
    lane=LANE,
    overlap="queue",
    options={
        "area": object,
        "quality": Quality,
        "max_queries": types.Count,
        "removals": Literal["hold", "accept", "reject"],
    },
    source=SOURCE,
)


async def _metrics(store: Store, _traffic: Sequence[Traffic]) -> "Iterable[Metric]":
    from hasat.fetch import read_endpoints
    from hasat.fetch.endpoint_store import EndpointMetrics

    return EndpointMetrics(await read_endpoints(store, SOURCE)).collect()


def _simulator() -> "Simulator":
    from hasat.sources.tkgm.simulator import server

    return server.TKGM


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.tkgm.tools import TkgmTools

    return TkgmTools(context).all()


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.tkgm.routes import router

    return (router,)


TKGM = Source(
    SOURCE,
    "Cadastral parcels of the Turkish land registry",
    datasets=(PARCELS,),
    jobs=(SCAN,),
    lacks=lacks,
    tools=_tools,
    routers=_routers,
    migrations=files("hasat.sources.tkgm") / "migrations",
    simulator=_simulator,
    metrics=_metrics,
)
