"""Status and metrics of the source: freshness, last runs and quota."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from hasat.messages import msg
from hasat.settings import Settings
from hasat.source import Served
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.sources.football.jobs.seasons import unlisted_remarks
from hasat.sources.football.leagues import resolve
from hasat.sources.football.settings import FootballSettings
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# The matches of a day are fetched once a day; two hours are for a long queue.
_FRESH_HOURS = 26
_MAX_REMARKS = 10
_HELP = {
    "inferred_fixtures": "Matches inferred to be finished.",
    "set_aside": "Quarantined parts of responses.",
    "last_told_timestamp_seconds": "Unix time of the last match received from the API.",
}


async def status(store: Store, settings: Settings) -> Mapping[str, Any]:
    """Return the freshness of matches, the last runs and the remaining quota."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        names = [job.name for job in JOBS]
        await cursor.execute(load_query("hasat.sources.football", "status"), {"jobs": names})
        [row] = await cursor.fetchall()
    followed = bool(
        settings.section(FootballSettings).api_key
        and settings.section(FootballSettings).tracked_leagues
    )
    return {
        "lastToldAt": iso_time(row["told_at"]),
        "leagues": len(settings.section(FootballSettings).tracked_leagues),
        "fixtures": row["fixtures"],
        "inferred": row["inferred"],
        "setAside": row["set_aside"],
        "lastRuns": row["last_runs"],
        "quota": await quota_of(store, settings),
        "remarks": await _remarks(store, settings.section(FootballSettings)) if followed else [],
        "checks": {"football_freshness": _freshness(row) if followed else {"status": "Healthy"}},
    }


async def _remarks(store: Store, football: FootballSettings) -> list[str]:
    """Return which followed leagues the API does not list."""
    if not football.tracked_leagues:
        return []
    found = await resolve(store, football.tracked_leagues)
    return [*found.warnings, *await unlisted_remarks(store, found.leagues)][:_MAX_REMARKS]


async def quota_of(store: Store, settings: Settings) -> dict[str, Any]:
    """Return the budget windows of the API."""
    [quota] = [
        one
        for one in await read_all_quotas(store, settings, outcomes=False)
        if one.windows.upstream == SOURCE
    ]
    windows = quota.windows
    forecast = quota.forecast
    return {
        "day": windows.day.isoformat(),
        "dayLimit": windows.day_limit,
        "planLimit": windows.plan,
        "spent": windows.spent,
        "remaining": windows.remaining,
        "exhaustedAt": iso_time(windows.exhausted_at),
        "minuteLimit": windows.minute_limit,
        "minutePlanLimit": windows.minute_plan,
        "lastMinute": windows.last_minute,
        "pausedUntil": iso_time(windows.paused_until),
        "forecast": None if forecast is None else forecast.sentence,
    }


def _freshness(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["told_at"] is None:
        return {"status": "Degraded", "description": msg("No match has been received yet.")}
    if row["hours"] > _FRESH_HOURS:
        age = msg("The last match was received {hours:.0f} hours ago.", hours=row["hours"])
        return {"status": "Degraded", "description": age}
    return {"status": "Healthy"}


def iso_time(at: datetime | None) -> str | None:
    """Return a time in ISO 8601, or None."""
    return None if at is None else at.isoformat()


async def metrics(store: Store, _: Served) -> Iterable["Metric"]:
    """Return matches by state, inferences, quarantined parts and the time of the last match."""
    from prometheus_client.core import GaugeMetricFamily

    async with store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.sources.football", "metrics"))
        rows = await cursor.fetchall()
    fixtures = GaugeMetricFamily(
        "hasat_football_fixtures", "Matches in the mirror.", labels=("state",)
    )
    plain = []
    for name, label, value in rows:
        if name == "fixtures":
            fixtures.add_metric((label,), value)
        elif value is not None:
            plain.append(GaugeMetricFamily(f"hasat_football_{name}", _HELP[name], value))
    return [fixtures, *plain]
