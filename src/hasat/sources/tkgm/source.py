"""Declare the source `tkgm`: its dataset, its scan job and what it adds to the platform."""

import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hasat.budget import Upstream
from hasat.errors import OutOfQuotaError, UsageError
from hasat.feed.columns import Column
from hasat.feed.dataset import Dataset
from hasat.feed.holds import GuardError
from hasat.fetch import RequestContext
from hasat.jobs import Job, Outcome, RunContext
from hasat.messages import msg, template
from hasat.settings import Settings, types
from hasat.source import Served, Source, Tool, ToolContext, lazy
from hasat.sources.tkgm.postgis import missing_geometries
from hasat.sources.tkgm.scan import Quality
from hasat.sources.tkgm.settings import WORKERS_SETTING, TkgmSettings, tkgm_upstream, wfs_upstream
from hasat.store import Store

SOURCE = "tkgm"


def _title(body: Any) -> str:
    """Return a parcel as people name it: neighbourhood, ada and parsel."""
    properties = body["properties"]
    return f"{properties['mahalleAd']} {properties['adaNo']}/{properties['parselNo']}"


PARCELS = Dataset(
    "parcels",
    SOURCE,
    "Cadastral parcels, as GeoJSON features",
    title=_title,
    columns=(
        Column("il", path="properties.ilAd", summary="Province"),
        Column("ilce", path="properties.ilceAd", summary="District"),
        Column("mahalle", path="properties.mahalleAd", summary="Neighbourhood"),
        Column("mahalle_id", "integer", key_part=("/", 1), stored="mahalle_id"),
        Column("ada_no", key_part=("/", 2), stored="ada_no", summary="Block"),
        Column("parsel_no", key_part=("/", 3), stored="parsel_no", summary="Parcel"),
        Column("area", "number", "properties.alan", summary="Area in square metres"),
    ),
)

BUILDINGS = Dataset(
    "buildings",
    SOURCE,
    "Blocks and building units of condominiums, one record a parcel",
    columns=(
        Column("mahalle_id", "integer", "mahalleId"),
        Column("ada_no", path="adaNo", summary="Block"),
        Column("parsel_no", path="parselNo", summary="Parcel"),
        Column("unit_count", "integer", "unitCount", summary="Building units"),
    ),
)

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric


NAME = "tkgm_scan"
LANE = "daily"


def lacks(settings: Settings) -> str | None:
    """Return the setting that is missing, if parcels cannot be fetched."""
    if settings.section(TkgmSettings).workers_file is None:
        return msg("TKGM has no endpoints: name your workers.json in tkgm.workers_file.")
    return None


async def run(context: RunContext) -> Outcome:
    """Scan `area`, a box or GeoJSON; the other parameters are those of the command."""
    # Listing jobs must not load the geometry libraries.
    from hasat.sources.tkgm.registry.client import open_registry
    from hasat.sources.tkgm.scan.progress import (
        Forecast,
        ScanProgress,
        check_budget,
        progress_document,
        progress_note,
        sample_text,
    )
    from hasat.sources.tkgm.scan.runner import Scan

    if context.approving is not None:
        return await _remove_held(context)
    workers = context.settings.section(TkgmSettings).workers_file
    if workers is None:
        raise UsageError(
            msg("No endpoints configured."),
            remedy=msg("Name your workers.json in {setting}.", setting=WORKERS_SETTING),
        )
    request = _scan_request(context.params, context.settings.section(TkgmSettings))
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

        async def check(forecast: Forecast) -> None:
            if not context.params.get("yes"):
                check_budget(request, forecast.questions, registry.day_budget)

        scan = Scan(
            context.store,
            registry,
            request,
            RequestContext(LANE, NAME, context.run_id),
            report,
            check,
        )
        kind = "done"
        message: str | None = None
        try:
            if context.params.get("estimate"):
                forecast = await scan.run_sample()
                progress = await scan.progress()
                message = sample_text(forecast, progress.quota_left)
            elif not (progress := await scan.run()).complete:
                message = msg("Stopped at max_queries. The next run with the same area continues.")
        except GuardError as error:
            context.count_requests(registry.requests - counted)
            detail = progress_document(await scan.progress())
            error.finding = replace(error.finding, detail={"scan": detail})
            raise
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


async def _remove_held(context: RunContext) -> Outcome:
    """Remove the parcels of an approved hold, without a request."""
    from hasat.sources.tkgm.features import GONE, remove_parcels

    hold = await context.approved_hold()
    async with context.inputs() as files:
        keys = json.loads(files[GONE].read_bytes())
    version = await remove_parcels(context.store, keys, run=context.run_id, hold=hold)
    removed = version.counts[PARCELS.name].removed
    return Outcome("done" if removed else "nothing", rows_changed=removed)


def _scan_request(params: Any, settings: TkgmSettings) -> Any:
    from hasat.sources.tkgm.geometry import check_in_turkey, check_size, parse_area
    from hasat.sources.tkgm.scan.progress import ScanRequest

    if not params.get("area"):
        raise UsageError(
            msg("The parameter area is missing."),
            remedy=msg("Give area as west,south,east,north in degrees, or as GeoJSON."),
        )
    quality: Quality = params.get("quality") or "standard"
    area = parse_area(params["area"])
    if not params.get("yes"):
        check_in_turkey(area)
        check_size(area, settings.max_area_km2)
    return ScanRequest(area, quality, max_queries=params.get("max_queries"))


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
        "yes": bool,
        "estimate": bool,
    },
    source=SOURCE,
    page="/parcels",
)


async def _copy(context: RunContext) -> Outcome:
    if context.approving is not None:
        return await _remove_held(context)
    from hasat.sources.tkgm.wfs.job import copy_area

    return await copy_area(context)


COPY = Job(
    "tkgm_wfs",
    _copy,
    msg("Copies the parcels of an area from the official service, with its credentials."),
    lane=LANE,
    overlap="queue",
    options={"area": object, "yes": bool},
    source=SOURCE,
    page="/parcels",
)


async def _fetch_buildings(context: RunContext) -> Outcome:
    from hasat.sources.tkgm.buildings.job import fetch_area

    return await fetch_area(context)


UNITS = Job(
    "tkgm_buildings",
    _fetch_buildings,
    msg("Fetches the blocks and building units of parcels or of the condominiums in an area."),
    lane=LANE,
    overlap="queue",
    options={"area": object, "parcels": str},
    source=SOURCE,
)


async def _metrics(store: Store, _served: Served) -> "Iterable[Metric]":
    from hasat.fetch import read_endpoints
    from hasat.fetch.endpoint_metrics import EndpointMetrics

    return EndpointMetrics(await read_endpoints(store, SOURCE)).collect()


def _upstreams(settings: Settings) -> tuple[Upstream, ...]:
    # The official service is there only for those who have credentials.
    official = settings.section(TkgmSettings).wfs.url is not None
    return (tkgm_upstream(settings), *((wfs_upstream(settings),) if official else ()))


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.tkgm.tools import TkgmTools

    return TkgmTools(context).all()


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.tkgm.lists.routes import router as lists
    from hasat.sources.tkgm.routes import router

    return lists, router


TKGM = Source(
    SOURCE,
    msg("Cadastral parcels of the Turkish land registry"),
    extra="gis",
    settings=TkgmSettings,
    upstreams=_upstreams,
    datasets=(PARCELS, BUILDINGS),
    jobs=(SCAN, COPY, UNITS),
    rebuild={
        PARCELS.name: lazy("hasat.sources.tkgm.registry.rebuild:rebuild"),
        BUILDINGS.name: lazy("hasat.sources.tkgm.buildings.rebuild:rebuild"),
    },
    lacks=lacks,
    tools=_tools,
    routers=_routers,
    migrations=files("hasat.sources.tkgm") / "migrations",
    declaration=missing_geometries,
    commands=lazy("hasat.sources.tkgm.commands.parcels:app"),
    pages=lazy("hasat.sources.tkgm.pages:PAGES"),
    actions={
        "scan.start": template("Start scan"),
        "scan.delete": template("Delete scan"),
        "area.upload": template("Upload area"),
        "endpoints.reset": template("Reset endpoints"),
        "list.start": template("Find the parcels of a list"),
    },
    simulator=lazy("hasat.sources.tkgm.simulator.server:TKGM"),
    demo=lazy("hasat.sources.tkgm.demo:PART"),
    metrics=_metrics,
)
