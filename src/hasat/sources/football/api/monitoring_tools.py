"""MCP tools that monitor fetching, with the names and arguments of the original's tools."""

from collections import Counter
from collections.abc import Sequence
from datetime import date as day
from datetime import datetime, timedelta
from typing import Annotated, Any

from psycopg.rows import class_row, dict_row
from pydantic import BaseModel, Field

from hasat.errors import NotFoundError
from hasat.jobs.runs import list_runs
from hasat.messages import msg
from hasat.source import Tool, ToolContext
from hasat.sources.football.api.record_tools import FixtureRecord, load_fixtures
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.jobs.finishing import MARKED
from hasat.sources.football.leagues import resolve
from hasat.sources.football.settings import FootballSettings
from hasat.sources.football.states import LIVE, MAY_BE_OVER, SCHEDULED
from hasat.store.queries import load_query
from hasat.tools import Id, Limit, Text, ToolResponse, tools

_PACKAGE = "hasat.sources.football"
_AUTO_FINISH = "auto_finish_stale_fixtures"

Hours = Annotated[float, Field(gt=0, le=24 * 90)]
Minutes = Annotated[int, Field(ge=1, le=60 * 24 * 30)]


class Stale(ToolResponse):
    total: int
    by_status: dict[str, int]
    items: list[FixtureRecord]


class AutoFinished(ToolResponse):
    hours: float
    runs: int
    auto_finished: int = Field(description="Matches marked as probably finished.")
    settled_by_the_api: int = Field(description="Of these, reported by the API since.")
    still_inferred: int
    needs_score_verification: int
    oldest_inferred_at: datetime | None


class BackfillRecord(BaseModel):
    job: str
    league_id: int
    season: int
    first_date: day | None
    next_date: day | None
    completed: bool
    last_error: str | None
    updated_at: datetime


class Backfills(ToolResponse):
    completed: int
    total: int
    items: list[BackfillRecord]


class SyncTime(BaseModel):
    endpoint: str
    last_fetched_at: datetime


class SyncTimes(ToolResponse):
    items: list[SyncTime]


class ErrorCount(BaseModel):
    endpoint: str | None
    outcome: str
    requests: int


class ErrorSummary(ToolResponse):
    hours: float
    unreadable_elements: int
    items: list[ErrorCount]


class ErrorSample(BaseModel):
    at: datetime
    run: int | None
    origin: str
    reason: str
    content: str


class ErrorSamples(ToolResponse):
    items: list[ErrorSample]


class TrackedLeague(BaseModel):
    league_id: int
    name: str | None
    country: str | None
    type: str | None
    season: int
    coverage: dict[str, Any] | None = Field(description="null: the API does not list the season.")


class TrackedLeagues(ToolResponse):
    items: list[TrackedLeague]
    not_found: list[str] = Field(description="Why tracked names were not found.")


class LeagueRecord(ToolResponse):
    league_id: int
    name: str | None
    type: str | None
    country: str | None
    seasons: list[dict[str, Any]]


class MonitoringTools:
    """Tools that monitor stale matches, backfills, errors and leagues."""

    def __init__(self, context: ToolContext) -> None:
        self._store = context.store
        self._football = context.settings.section(FootballSettings)

    def all(self) -> tuple[Tool, ...]:
        return tools(
            self.stale_fixtures_report,
            self.auto_finish_stats,
            self.get_stale_live_fixtures_status,
            self.get_stale_scheduled_fixtures_status,
            self.get_backfill_progress,
            self.get_last_sync_time,
            self.get_raw_error_summary,
            self.get_raw_error_samples,
            self.list_tracked_leagues,
            self.get_league_info,
        )

    async def stale_fixtures_report(
        self, threshold_hours: Hours = 2, safety_lag_hours: Hours = 3, limit: Limit = 50
    ) -> Stale:
        """Return matches without recent news, which auto-finish would mark as finished.

        Excludes suspended, postponed and abandoned matches, and matches of
        competitions without live events that have not started according to the API.
        """
        values = {
            "leagues": await self._leagues(),
            "statuses": list(MAY_BE_OVER),
            "threshold": timedelta(hours=threshold_hours),
            "lag": timedelta(hours=safety_lag_hours),
            "limit": 100_000,
        }
        return await self._stale(load_query(_PACKAGE, "may_be_over"), values, limit)

    async def auto_finish_stats(self, hours: Hours = 24) -> AutoFinished:
        """Return how many matches were marked as finished, and how many await the API."""
        now = await self._store.now()
        since = now - timedelta(hours=hours)
        runs = await list_runs(self._store, job=_AUTO_FINISH, limit=5000)
        recent = [
            run
            for run in runs
            if run.finished_at is not None
            and run.finished_at >= since
            and not run.params.get("dry_run")
        ]
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                "SELECT count(*), count(*) FILTER (WHERE inferred_at >= %(since)s),"
                " count(*) FILTER (WHERE needs_score_verification), min(inferred_at)"
                " FROM core.fixture_inferences",
                {"since": since},
            )
            row = await cursor.fetchone()
        assert row is not None
        waiting, waiting_of_these, unverified, oldest = row
        marked = max(sum(run.detail.get(MARKED, 0) for run in recent), waiting_of_these)
        return AutoFinished(
            ts_utc=now,
            hours=hours,
            runs=len(recent),
            auto_finished=marked,
            settled_by_the_api=marked - waiting_of_these,
            still_inferred=waiting,
            needs_score_verification=unverified,
            oldest_inferred_at=oldest,
        )

    async def get_stale_live_fixtures_status(
        self, threshold_minutes: Minutes = 15, limit: Limit = 50
    ) -> Stale:
        """Return matches in play without news for threshold_minutes."""
        return await self._stale_in(LIVE, threshold_minutes, timedelta(days=30), limit)

    async def get_stale_scheduled_fixtures_status(
        self,
        threshold_minutes: Minutes = 60,
        lookback_days: Annotated[int, Field(ge=1, le=60)] = 3,
        limit: Limit = 50,
    ) -> Stale:
        """Return matches that should have started, without news for threshold_minutes."""
        lookback = timedelta(days=lookback_days)
        return await self._stale_in(SCHEDULED, threshold_minutes, lookback, limit)

    async def get_backfill_progress(self, job_name: Text | None = None) -> Backfills:
        """Return the progress of backfills by season; everything before next_date is mirrored."""
        items = await self._store.rows(
            BackfillRecord,
            "SELECT * FROM core.backfill_progress WHERE %(job)s::text IS NULL OR job = %(job)s"
            " ORDER BY job, league_id, season",
            {"job": job_name},
        )
        done = sum(item.completed for item in items)
        return Backfills(
            ts_utc=await self._store.now(), completed=done, total=len(items), items=items
        )

    async def get_last_sync_time(self, endpoint: Text | None = None) -> SyncTimes:
        """Return when each endpoint of the API, such as /fixtures, last responded."""
        items = await self._store.rows(
            SyncTime,
            "SELECT endpoint, max(last_fetched_at) AS last_fetched_at FROM raw.api_responses"
            " WHERE %(endpoint)s::text IS NULL OR endpoint = %(endpoint)s"
            " GROUP BY endpoint ORDER BY endpoint",
            {"endpoint": endpoint and f"/{endpoint.strip('/')}"},
        )
        return SyncTimes(ts_utc=await self._store.now(), items=items)

    async def get_raw_error_summary(self, hours: Hours = 24) -> ErrorSummary:
        """Return failed requests of the last hours by endpoint and outcome."""
        now = await self._store.now()
        since = now - timedelta(hours=hours)
        async with self._store.connection() as conn:
            async with conn.cursor(row_factory=class_row(ErrorCount)) as cursor:
                await cursor.execute(
                    "SELECT endpoint, coalesce(outcome, 'no answer') AS outcome,"
                    " count(*) AS requests FROM budget.request"
                    " WHERE upstream = %(source)s AND at >= %(since)s"
                    " AND outcome IS DISTINCT FROM 'ok' AND outcome IS DISTINCT FROM 'empty'"
                    " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2",
                    {"source": SOURCE, "since": since},
                )
                items = await cursor.fetchall()
            found = await conn.execute(
                "SELECT count(*) FROM raw.set_aside WHERE source = %s AND at >= %s",
                [SOURCE, since],
            )
            row = await found.fetchone()
        assert row is not None
        return ErrorSummary(ts_utc=now, hours=hours, unreadable_elements=row[0], items=items)

    async def get_raw_error_samples(self, limit: Limit = 10) -> ErrorSamples:
        """Return the newest quarantined parts of responses, with the reason."""
        items = await self._store.rows(
            ErrorSample,
            "SELECT at, run, origin, reason,"
            " encode(substring(content FOR 500), 'escape') AS content"
            " FROM raw.set_aside WHERE source = %s ORDER BY id DESC LIMIT %s",
            [SOURCE, limit],
        )
        return ErrorSamples(ts_utc=await self._store.now(), items=items)

    async def list_tracked_leagues(self) -> TrackedLeagues:
        """Return the followed leagues and their coverage by the API."""
        followed = await resolve(self._store, self._football.tracked_leagues)
        known = await self._league_rows([league.id for league in followed.leagues])
        items = []
        for league in followed.leagues:
            row = known.get(league.id, {})
            seasons = row.get("seasons")
            listed = [
                one
                for one in (seasons if isinstance(seasons, list) else ())
                if isinstance(one, dict) and one.get("year") == league.season
            ]
            items.append(
                TrackedLeague(
                    league_id=league.id,
                    season=league.season,
                    name=row.get("name"),
                    country=row.get("country"),
                    type=row.get("type"),
                    coverage=listed[0].get("coverage") if listed else None,
                )
            )
        return TrackedLeagues(
            ts_utc=await self._store.now(), items=items, not_found=list(followed.warnings)
        )

    async def get_league_info(self, league_id: Id) -> LeagueRecord:
        """Return a league as the API lists it, with all seasons and their coverage."""
        row = (await self._league_rows([league_id])).get(league_id)
        if row is None:
            raise NotFoundError(
                msg("The mirror has no league {league_id}.", league_id=league_id),
                remedy=msg("The job bootstrap_leagues fetches all leagues."),
            )
        return LeagueRecord(ts_utc=await self._store.now(), **row)

    async def _leagues(self) -> list[int]:
        found = await resolve(self._store, self._football.tracked_leagues)
        return [league.id for league in found.leagues]

    async def _stale_in(
        self, statuses: Sequence[str], minutes: int, lookback: timedelta, limit: int
    ) -> Stale:
        silence = timedelta(minutes=minutes)
        values = {
            "leagues": await self._leagues(),
            "statuses": list(statuses),
            "now": await self._store.now(),
            "silence": silence,
            "began": min(silence, timedelta(hours=1)),
            "late": lookback,
            "lookback": lookback,
            "checks": [],
            "unknown": False,
            "limit": 100_000,
        }
        return await self._stale(load_query(_PACKAGE, "stale_fixtures"), values, limit)

    async def _stale(self, query: Any, values: dict[str, Any], limit: int) -> Stale:
        async with self._store.connection() as conn:
            cursor = await conn.execute(query, values)
            ids = [row[0] for row in await cursor.fetchall()]
        # All matches are counted, the first ones are returned.
        found = await load_fixtures(self._store, ids=ids, limit=len(ids)) if ids else []
        return Stale(
            ts_utc=await self._store.now(),
            total=len(found),
            by_status=dict(Counter(one.status_short or "unknown" for one in found)),
            items=sorted(found, key=lambda one: (one.date is None, one.date))[:limit],
        )

    async def _league_rows(self, leagues: Sequence[int]) -> dict[int, dict[str, Any]]:
        async with (
            self._store.connection() as conn,
            conn.cursor(row_factory=dict_row) as cursor,
        ):
            await cursor.execute(
                "SELECT league_id, name, type, country, seasons FROM core.leagues"
                " WHERE league_id = ANY (%s)",
                [list(leagues)],
            )
            rows = await cursor.fetchall()
        return {row["league_id"]: {**row, "seasons": _seasons(row["seasons"])} for row in rows}


def _seasons(value: Any) -> list[dict[str, Any]]:
    """Return the readable seasons; the mirror has whatever was published."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
