"""The declaration of the source `gib`."""

from importlib.resources import files
from typing import TYPE_CHECKING

from hasat.messages import msg, template
from hasat.source import Source, Tool, ToolContext, lazy
from hasat.sources.gib.datasets import DATASETS, SOURCE
from hasat.sources.gib.search import SEARCH
from hasat.sources.gib.settings import GibSettings, gib_upstream
from hasat.sources.gib.status import metrics, status
from hasat.sources.gib.sync.declaration import SYNC
from hasat.sources.gib.sync.events import KINDS

if TYPE_CHECKING:
    from fastapi import APIRouter


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.gib.check import file_routes, routes
    from hasat.sources.gib.routes import lookup_router

    return (routes.router, file_routes.router, *map(lookup_router, DATASETS))


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.gib.tools import GibTools

    return GibTools(context).all()


_rebuild = lazy("hasat.sources.gib.sync.rebuild:rebuild")

GIB = Source(
    SOURCE,
    msg("e-Fatura and e-İrsaliye taxpayer lists of the Turkish Revenue Administration"),
    settings=GibSettings,
    upstreams=lambda settings: (gib_upstream(settings),),
    datasets=DATASETS,
    jobs=(SYNC, SEARCH),
    rebuild=dict.fromkeys((one.name for one in DATASETS), _rebuild),
    routers=_routers,
    invalid_input_status=400,
    status=status,
    metrics=metrics,
    tools=_tools,
    events=KINDS,
    actions={"receipt.issue": template("Issue receipt")},
    migrations=files("hasat.sources.gib") / "migrations",
    commands=lazy("hasat.sources.gib.commands:app"),
    pages=lazy("hasat.sources.gib.pages:PAGES"),
    simulator=lazy("hasat.sources.gib.simulator.server:GIB"),
    demo=lazy("hasat.sources.gib.demo:PART"),
)
