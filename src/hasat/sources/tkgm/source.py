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
    """Return the setting that is missing, if parcels cannot be fetched."""
    if settings.tkgm.workers_file is None:
        return msg("TKGM has no endpoints: name your workers.json in tkgm.workers_file.")
    return None


async def run(context: RunContext) -> Outcome:
    """Scan `area`, a box or GeoJSON; `quality`, `max_queries` and `removals` as in the command."""
    # Listing jobs must not load the geometry libraries.
    from hasat.sources.tkgm.registry.client import open_registry
    from hasat.sources.tkgm.scan.progress import ScanProgress, progress_document, progress_note
    from hasat.sources.tkgm.scan.runner import Scan

    workers = context.settings.tkgm.workers_file
    if workers is None:
        raise UsageError(
            msg("No endpoints configured."),
            remedy=msg("Name your workers.json in tkgm.workers_file."),
        )
    request = _scan_request(context.params)
    async with open_registry(
        context.store, context.settings, workers, waiting=context.waiting
    ) as registry:
        counted = 0

        async def report(progress: ScanProgress) -> None:
            nonlocal counted
            context.count_requests(registry.requests - counted)
            counted = registry.requests
            await context.progress(
                progress.queries, progress.total_queries, progress_note(progress)
            )

        scan = Scan(
            context.store,
            registry,
            request,
            RequestContext(LANE, NAME, context.run_id),
            report,
            removals=context.params.get("removals") or "hold",
        )
        kind = "done"
        message: str | None = None
        try:
            progress = await scan.run()
            if not progress.complete:
                message = msg("Stopped at max_queries. The next run with the same area continues.")
        except OutOfQuotaError as error:
            kind, message = "out_of_quota", error.message
            progress = await scan.progress()
        context.count_requests(registry.requests - counted)
    return Outcome(
        kind,  # type: ignore[arg-type]
        rows_changed=progress.changes.total,
        detail=progress_document(progress),
        message=message,
    )


def _scan_request(params: Any) -> Any:
    from hasat.sources.tkgm.geometry import parse_area
    from hasat.sources.tkgm.scan.scan_request import ScanRequest

    if not params.get("area"):
        raise UsageError(
            msg("The parameter area is missing."),
            remedy=msg("Give area as west,south,east,north in degrees, or as GeoJSON."),
        )
    quality: Quality = params.get("quality") or "standard"
    return ScanRequest(parse_area(params["area"]), quality, max_queries=params.get("max_queries"))


SCAN = Job(
    NAME,
    run,
    msg("Finds all parcels of an area; continues where it stopped when the quota ended."),
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
    msg("Cadastral parcels of the Turkish land registry"),
    datasets=(PARCELS,),
    jobs=(SCAN,),
    lacks=lacks,
    tools=_tools,
    routers=_routers,
    migrations=files("hasat.sources.tkgm") / "migrations",
    simulator=_simulator,
    metrics=_metrics,
)
