"""The source `tkgm`, as the platform sees it."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from hasat.sources.registry import Source, Tool, ToolContext, Traffic
from hasat.sources.tkgm.datasets import PARCELS, SOURCE
from hasat.sources.tkgm.job import SCAN, lacks
from hasat.store import Store

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric

    from hasat.sim import Simulator


async def _metrics(store: Store, _traffic: Sequence[Traffic]) -> "Iterable[Metric]":
    from hasat.fetch import read_endpoints
    from hasat.fetch.report import EndpointMetrics

    return EndpointMetrics(await read_endpoints(store, SOURCE)).collect()


def _simulator() -> "Simulator":
    from hasat.sources.tkgm.simulator import server

    return server.TKGM


def _tools(shop: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.tkgm.tools import TkgmTools

    return TkgmTools(shop).all()


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
