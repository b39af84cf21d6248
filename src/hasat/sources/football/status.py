"""What the source says of itself: how fresh it is, what its jobs did, what is left of the day."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.football.datasets import SOURCE
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.sources.registry import Traffic
from hasat.sources.upstreams import read_all_quotas
from hasat.store import Store
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# The day's matches are asked for once a day; with two hours of grace for a long queue.
_FRESH_HOURS = 26
_TEXTS = {
    "inferred_fixtures": "Matches that are inferred to be over.",
    "set_aside": "Parts of answers that could not be read.",
    "last_told_timestamp_seconds": "When the API last told of a match, as unix time.",
}


async def status(store: Store, settings: Settings) -> Mapping[str, Any]:
    """When matches were last told of, how the last runs went, and how much may still be asked."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        names = [job.name for job in JOBS]
        await cursor.execute(load_query("hasat.sources.football", "status"), {"jobs": names})
        [row] = await cursor.fetchall()
    followed = bool(settings.football.api_key and settings.football.tracked_leagues)
    return {
        "lastToldAt": iso_time(row["told_at"]),
        "leagues": len(settings.football.tracked_leagues),
        "fixtures": row["fixtures"],
        "inferred": row["inferred"],
        "setAside": row["set_aside"],
        "lastRuns": row["last_runs"],
        "quota": await quota_of(store, settings),
        "checks": {"football_freshness": _freshness(row) if followed else {"status": "Healthy"}},
    }


async def quota_of(store: Store, settings: Settings) -> dict[str, Any]:
    """The windows of the API's budget."""
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
        return {"status": "Degraded", "description": msg("No match was ever told of.")}
    if row["hours"] > _FRESH_HOURS:
        age = msg("The API last told of a match {hours:.0f} hours ago.", hours=row["hours"])
        return {"status": "Degraded", "description": age}
    return {"status": "Healthy"}


def iso_time(at: datetime | None) -> str | None:
    """A time as answers have it."""
    return None if at is None else at.isoformat()


async def metrics(store: Store, _: Sequence[Traffic]) -> Iterable["Metric"]:
    """Matches by what became of them, what is inferred, and when the API last told."""
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
            plain.append(GaugeMetricFamily(f"hasat_football_{name}", _TEXTS[name], value))
    return [fixtures, *plain]
