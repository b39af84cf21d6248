"""The overview: what this house is doing right now."""

from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from hasat import __version__
from hasat.jobs import Catalogue
from hasat.jobs.runs import list_runs, schedule_overview
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store

_RUNS_SHOWN = 10


def add_pages(
    app: FastAPI,
    settings: Settings,
    store: Store,
    catalogue: Catalogue,
    sources: Sequence[Source],
) -> None:
    """Put the pages into the app."""
    zone = ZoneInfo(settings.jobs.timezone)
    templates = Environment(
        loader=PackageLoader("hasat.web"), autoescape=True, undefined=StrictUndefined
    )
    templates.filters["moment"] = lambda value: _moment(value, zone)
    style = (files("hasat.web") / "static" / "hasat.css").read_bytes()

    @app.get("/", include_in_schema=False)
    async def overview(request: Request) -> HTMLResponse:
        page = templates.get_template("overview.html").render(
            version=__version__,
            zone=zone.key,
            sources=sources,
            jobs=await schedule_overview(store, catalogue),
            runs=await list_runs(store, limit=_RUNS_SHOWN),
            now=await store.now(),
        )
        return HTMLResponse(page)

    @app.get("/static/hasat.css", include_in_schema=False)
    async def stylesheet() -> Response:
        return Response(
            style, media_type="text/css", headers={"Cache-Control": "public, max-age=300"}
        )


def _moment(value: datetime | None, zone: ZoneInfo) -> str:
    return value.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if value else "–"
