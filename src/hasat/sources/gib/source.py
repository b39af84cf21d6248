"""The declaration of the source `gib`."""

from importlib.resources import files
from typing import TYPE_CHECKING

from hasat.messages import msg
from hasat.sources.gib.datasets import DATASETS, SOURCE
from hasat.sources.gib.search import SEARCH
from hasat.sources.gib.status import metrics, status
from hasat.sources.gib.sync.job import SYNC
from hasat.sources.registry import Source, Tool, ToolContext

if TYPE_CHECKING:
    from fastapi import APIRouter

    from hasat.sim import Simulator


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.gib.routes import lookup_router

    return tuple(map(lookup_router, DATASETS))


def _simulator() -> "Simulator":
    from hasat.sources.gib.simulator import server

    return server.GIB


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.gib.tools import GibTools

    return GibTools(context).all()


GIB = Source(
    SOURCE,
    msg("e-Fatura and e-İrsaliye taxpayer lists of the Turkish Revenue Administration"),
    datasets=DATASETS,
    jobs=(SYNC, SEARCH),
    routers=_routers,
    status=status,
    metrics=metrics,
    tools=_tools,
    migrations=files("hasat.sources.gib") / "migrations",
    simulator=_simulator,
)
