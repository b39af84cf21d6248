"""The source `football`, as the platform sees it."""

from importlib.resources import files

from hasat.settings import Settings
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.jobs import JOBS
from hasat.sources.registry import Source, Tool, Workshop


def _lacks(settings: Settings) -> str | None:
    if settings.football.api_key is None:
        return "API-Football needs a key: set API_FOOTBALL_KEY."
    if not settings.football.tracked_leagues:
        return "API-Football follows no league: set tracked_leagues in jobs/daily.yaml."
    return None


def _tools(shop: Workshop) -> tuple[Tool, ...]:
    from hasat.sources.football.queries import FootballQueries
    from hasat.sources.football.tools import FootballTools

    return (*FootballTools(shop).all(), *FootballQueries(shop).all())


FOOTBALL = Source(
    SOURCE,
    "API-Football v3: matches, tables, injuries, and every correction of them",
    datasets=tuple(DATASETS.values()),
    jobs=JOBS,
    lacks=_lacks,
    tools=_tools,
    migrations=files("hasat.sources.football") / "migrations",
)
