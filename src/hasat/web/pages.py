"""The overview: what this house is doing right now."""

from collections.abc import Awaitable, Callable, Sequence
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
from hasat.web.story import SCENES

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

    @app.get("/", include_in_schema=False)
    async def overview(request: Request) -> HTMLResponse:
        page = templates.get_template("overview.html").render(
            version=__version__,
            zone=zone,
            story=settings.demo.began,
            scenes=SCENES,
            sources=sources,
            jobs=await schedule_overview(store, catalogue),
            runs=await list_runs(store, limit=_RUNS_SHOWN),
            now=await store.now(),
        )
        return HTMLResponse(page)

    for path, name, kind in (
        ("/static/hasat.css", "hasat.css", "text/css"),
        ("/favicon.svg", "favicon.svg", "image/svg+xml"),
        # What browsers ask for beside a page of JSON.
        ("/favicon.ico", "favicon.svg", "image/svg+xml"),
    ):
        app.get(path, include_in_schema=False)(_file(name, kind))


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (files("hasat.web") / "static" / name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=300"})

    return answer


def _moment(value: datetime | None, zone: ZoneInfo) -> str:
    return value.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if value else "–"
