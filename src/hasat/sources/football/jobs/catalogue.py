"""The jobs of this source, with the names and schedules of the original."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from hasat.jobs import Job
from hasat.messages import msg
from hasat.settings import types
from hasat.sources.football.client import Collector, run_with_client
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.ingest import raw_store
from hasat.sources.football.jobs import bootstrap, finishing, fixtures, optional, tables

_OPTIONS = {"only_league_id": types.Id}
_Hours = Annotated[float, Field(ge=0, le=2160, allow_inf_nan=False)]
_Minutes = Annotated[int, Field(ge=1, le=43_200)]
_Interval = Annotated[int, Field(ge=15, le=60)]
_BatchSize = Annotated[int, Field(ge=1, le=20)]


def _job(
    name: str,
    collect: Collector,
    summary: str,
    cron: str | None,
    lane: str = "daily",
    *,
    params: Mapping[str, Any] | None = None,
    enabled: bool = True,
    **options: Any,
) -> Job:
    return Job(
        name,
        run_with_client(collect),
        summary,
        cron,
        enabled=enabled,
        lane=lane,
        params=params or {},
        options=_OPTIONS | options,
        source=SOURCE,
    )


JOBS = (
    _job("bootstrap_timezones", bootstrap.timezones, msg("Time zones of the API."), "0 3 1 * *"),
    _job("bootstrap_countries", bootstrap.countries, msg("Countries of the API."), "5 3 1 * *"),
    _job("bootstrap_leagues", bootstrap.leagues, msg("All leagues and their coverage."), None),
    _job(
        "bootstrap_teams",
        bootstrap.teams,
        msg("Teams of the followed seasons, once each."),
        None,
        only_season=types.Year,
    ),
    _job(
        "daily_fixtures_by_date",
        fixtures.by_date,
        msg("Matches of yesterday, today and tomorrow."),
        "0 6 * * *",
        only_season=types.Year,
    ),
    _job(
        "fixture_details_recent_finalize",
        fixtures.recent_details,
        msg("Details of finished matches: at once, after a day and after a week."),
        "30 6 * * *",
        "details",
        only_season=types.Year,
    ),
    _job(
        "daily_standings",
        tables.standings,
        msg("Tables of leagues with newly finished matches."),
        "10 */2 * * *",
        params={"at_once": False},
        only_season=types.Year,
    ),
    _job(
        "injuries_hourly",
        tables.injuries,
        msg("Upcoming injuries and suspensions."),
        "2 * * * *",
        only_season=types.Year,
    ),
    _job(
        "top_scorers_daily",
        tables.top_scorers,
        msg("Top scorers of leagues with newly finished matches."),
        "40 6 * * *",
        params={"at_once": False},
        only_season=types.Year,
    ),
    _job(
        "team_statistics_refresh",
        tables.team_statistics,
        msg("Season statistics for teams that played."),
        "7-59/10 * * * *",
        "details",
        only_season=types.Year,
    ),
    _job(
        "fixtures_backfill_league_season",
        fixtures.backfill,
        msg("All matches of the followed and previous seasons."),
        "0-59/10 * * * *",
        "backfill",
        only_season=types.Year,
    ),
    _job(
        "standings_backfill_league_season",
        tables.standings_backfill,
        msg("Tables of the followed and previous seasons, once each."),
        "3-59/10 * * * *",
        "backfill",
        only_season=types.Year,
    ),
    _job(
        "fixture_details_backfill_90d",
        fixtures.details_of_90_days,
        msg("Details of the matches of the last 90 days."),
        "5-59/10 * * * *",
        "backfill",
        only_season=types.Year,
    ),
    _job(
        "fixture_details_backfill_season",
        fixtures.details_of_seasons,
        msg("Details of all matches of the followed seasons."),
        "8-59/10 * * * *",
        "backfill",
        only_season=types.Year,
    ),
    Job(
        "auto_finish_stale_fixtures",
        finishing.auto_finish,
        msg("Marks silent matches as probably finished."),
        "0 * * * *",
        lane="finalise",
        source=SOURCE,
        params={
            "threshold_hours": 2,
            "safety_lag_hours": 3,
            "try_fetch_first": False,
            "max_fixtures_per_run": 1000,
            "dry_run": False,
        },
        options=_OPTIONS
        | {
            "threshold_hours": _Hours,
            "safety_lag_hours": _Hours,
            "max_fixtures_per_run": types.Count,
        },
    ),
    _job(
        "auto_finish_verification",
        finishing.verify,
        msg("Verifies matches marked as finished."),
        "*/30 * * * *",
        "verify",
        min_daily_quota=types.Requests,
    ),
    _job(
        "stale_live_refresh",
        finishing.stale_live,
        msg("Updates matches in play without recent news."),
        "*/5 * * * *",
        "finalise",
        params={"stale_threshold_minutes": 15, "batch_size": 20},
        stale_threshold_minutes=_Minutes,
        batch_size=_BatchSize,
    ),
    _job(
        "stale_scheduled_finalize",
        finishing.stale_scheduled,
        msg("Updates matches that should have started."),
        "*/30 * * * *",
        "finalise",
        params={"stale_threshold_minutes": 60, "lookback_days": 3, "batch_size": 20},
        stale_threshold_minutes=_Minutes,
        lookback_days=types.Days,
        batch_size=_BatchSize,
    ),
    _job(
        "optional_data_refresh",
        optional.collect,
        msg("Optional data that are switched on: players, transfers, odds and more."),
        "4-59/10 * * * *",
        "backfill",
        dataset=types.Name,
    ),
    _job(
        "live_refresh",
        optional.live,
        msg("Matches in play, one request for all leagues."),
        "* * * * *",
        "finalise",
        params={"interval_seconds": 60},
        interval_seconds=_Interval,
        enabled=False,
    ),
    _job(
        "season_rollover_watch",
        bootstrap.watch_rollover,
        msg("Reports new seasons of followed leagues."),
        "5 1 * * *",
    ),
)

RETENTION = Job(
    "raw_retention_archive",
    raw_store.archive_months,
    msg("Moves old months of raw responses to Parquet files."),
    "45 4 * * *",
    options={},
    source=SOURCE,
)
