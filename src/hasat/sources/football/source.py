"""The declaration of the source `football`."""

from importlib.resources import files
from typing import TYPE_CHECKING

from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.jobs.catalogue import JOBS, RETENTION
from hasat.sources.football.status import metrics, status
from hasat.sources.registry import Source, Tool, ToolContext

if TYPE_CHECKING:
    from fastapi import APIRouter

    from hasat.sim import Simulator


def _lacks(settings: Settings) -> str | None:
    if settings.football.api_key is None:
        return msg("API-Football needs a key: set API_FOOTBALL_KEY.")
    if not settings.football.tracked_leagues:
        return msg("No league is followed: set tracked_leagues in jobs/daily.yaml.")
    return None


def _simulator() -> "Simulator":
    from hasat.sources.football.simulator import server

    return server.FOOTBALL


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.football.api.monitoring_tools import MonitoringTools
    from hasat.sources.football.api.record_tools import RecordTools

    return (*MonitoringTools(context).all(), *RecordTools(context).all())


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.football.api import match_routes, table_routes

    return match_routes.router, table_routes.router


FOOTBALL = Source(
    SOURCE,
    msg("API-Football v3: matches, tables, injuries and every correction"),
    datasets=tuple(DATASETS.values()),
    jobs=(*JOBS, RETENTION),
    routers=_routers,
    status=status,
    metrics=metrics,
    lacks=_lacks,
    tools=_tools,
    migrations=files("hasat.sources.football") / "migrations",
    simulator=_simulator,
)
