"""The declaration of the source `football`."""

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hasat.feed.dataset import Dataset
from hasat.feed.rebuild import OnResponses, RebuildSummary
from hasat.messages import msg, template
from hasat.settings import Settings
from hasat.source import Source, Tool, ToolContext, lazy
from hasat.sources.football.endpoints import DATASETS, SOURCE
from hasat.sources.football.jobs.catalogue import JOBS, RETENTION
from hasat.sources.football.settings import FootballSettings, football_upstream
from hasat.sources.football.status import metrics, status
from hasat.store import Store

if TYPE_CHECKING:
    from fastapi import APIRouter


def _lacks(settings: Settings) -> str | None:
    if settings.section(FootballSettings).api_key is None:
        return msg("API-Football needs a key: set API_FOOTBALL_KEY.")
    if not settings.section(FootballSettings).tracked_leagues:
        return msg("No league is followed: set tracked_leagues in jobs/daily.yaml.")
    return None


def _manual_params(settings: Settings) -> Mapping[str, Any]:
    league = settings.section(FootballSettings).only_league_id
    return {} if league is None else {"only_league_id": league}


def _tools(context: ToolContext) -> tuple[Tool, ...]:
    from hasat.sources.football.api.monitoring_tools import MonitoringTools
    from hasat.sources.football.api.record_tools import RecordTools

    return (*MonitoringTools(context).all(), *RecordTools(context).all())


async def _rebuild(
    store: Store,
    settings: Settings,
    dataset: Dataset,
    *,
    run: int | None = None,
    approving: int | None = None,
    on_progress: OnResponses | None = None,
) -> RebuildSummary:
    """Rebuild all datasets: a response contains records of several."""
    from hasat.sources.football.ingest.rebuild import rebuild

    return await rebuild(store, settings, run=run, approving=approving, on_progress=on_progress)


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.football.api import analysis_routes, match_routes, table_routes

    return match_routes.router, table_routes.router, analysis_routes.router


FOOTBALL = Source(
    SOURCE,
    msg("API-Football v3: matches, tables, injuries and every correction"),
    settings=FootballSettings,
    upstreams=lambda settings: (football_upstream(settings),),
    datasets=tuple(DATASETS.values()),
    jobs=(*JOBS, RETENTION),
    manual_params=_manual_params,
    routers=_routers,
    status=status,
    metrics=metrics,
    lacks=_lacks,
    tools=_tools,
    migrations=files("hasat.sources.football") / "migrations",
    commands=lazy("hasat.sources.football.commands:app"),
    pages=lazy("hasat.sources.football.pages:PAGES"),
    actions={"football.rebuild": template("Rebuild football")},
    rebuild=dict.fromkeys(DATASETS, _rebuild),
    simulator=lazy("hasat.sources.football.simulator.server:FOOTBALL"),
    demo=lazy("hasat.sources.football.demo:PART"),
)
