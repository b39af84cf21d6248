"""The source `football`, as the platform sees it."""

from importlib.resources import files

from hasat.settings import Settings
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.jobs import JOBS
from hasat.sources.registry import Source


def _lacks(settings: Settings) -> str | None:
    if settings.football.api_key is None:
        return "API-Football needs a key: set API_FOOTBALL_KEY."
    if not settings.football.tracked_leagues:
        return "API-Football follows no league: set tracked_leagues in jobs/daily.yaml."
    return None


FOOTBALL = Source(
    SOURCE,
    "API-Football v3: matches, tables, injuries, and every correction of them",
    datasets=tuple(DATASETS.values()),
    jobs=JOBS,
    lacks=_lacks,
    migrations=files("hasat.sources.football") / "migrations",
)
