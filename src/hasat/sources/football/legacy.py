"""Names and file formats of the collector that the source `football` replaces."""

from hasat.settings import legacy
from hasat.settings.legacy import Inert, ItemDefault, LegacyFile, LegacyNames

_LIVE = (
    "matches are followed by the stale_* jobs; enable the job live_refresh to ask once a minute"
    " or more often."
)
_RUNS = "the state of jobs is in the database (`hasat jobs history`), not in a log file."
_LEAGUES = "leagues are resolved from the API's own list."
_TRACKED = "tracked_leagues is in jobs/daily.yaml."
_PLAN = "the limits are in rate_limiter.yaml (football.rate_limiter)."
_LIMITS = {
    name: f"football.rate_limiter.{name}"
    for name in (
        "token_bucket_per_minute",
        "minute_soft_limit",
        "minute_limit",
        "daily_limit",
        "emergency_stop_threshold",
        "usage_target_percent",
    )
}

LEGACY = LegacyNames(
    environment={
        "football.api_key": ("API_FOOTBALL_KEY",),
        "football.base_url": ("API_FOOTBALL_BASE_URL",),
        "football.only_league_id": ("ONLY_LEAGUE_ID",),
        "football.bootstrap_static_on_start": ("BOOTSTRAP_STATIC_ON_START",),
        "football.backfill.fixtures_max_tasks_per_run": ("BACKFILL_FIXTURES_MAX_TASKS_PER_RUN",),
        "football.backfill.fixtures_max_pages_per_task": ("BACKFILL_FIXTURES_MAX_PAGES_PER_TASK",),
        "football.backfill.fixtures_window_days": ("BACKFILL_FIXTURES_WINDOW_DAYS",),
        "football.backfill.standings_max_tasks_per_run": ("BACKFILL_STANDINGS_MAX_TASKS_PER_RUN",),
        "football.details.backfill_batch": ("FIXTURE_DETAILS_BACKFILL_BATCH",),
        "football.details.season_backfill_batch": ("FIXTURE_DETAILS_SEASON_BACKFILL_BATCH",),
        "football.details.finalize_batch": ("FIXTURE_DETAILS_FINALIZE_BATCH",),
        "football.details.lineups_window_batch": ("FIXTURE_LINEUPS_WINDOW_BATCH",),
        "football.details.stale_minutes": ("FIXTURE_DETAILS_STALE_MINUTES",),
        "football.team_stats.max_tasks_per_run": ("TEAM_STATS_MAX_TASKS_PER_RUN",),
        "football.team_stats.refresh_hours": ("TEAM_STATS_REFRESH_HOURS",),
        "football.verification.max_attempts": ("VERIFICATION_MAX_ATTEMPTS",),
        "football.verification.cooldown_hours": ("VERIFICATION_COOLDOWN_HOURS",),
    },
    variable_names={"football.api_key": "football.api_key_env"},
    variable_defaults={"POSTGRES_DB": "api_football"},
    files=(
        LegacyFile(
            "api.yaml",
            "`api`, `rate_limits` and `logging` of the football collector",
            {
                "api": {
                    "base_url": "football.base_url",
                    "api_key_env": "football.api_key_env",
                    "timeout_seconds": "football.timeout_seconds",
                    "default_timezone": "football.default_timezone",
                },
                "rate_limits": _LIMITS,
                "logging": {
                    "level": "log.level",
                    "format": "log.format",
                    "destination": Inert("logs go to stderr, and to log.file if that is set."),
                },
            },
        ),
        LegacyFile(
            "rate_limiter.yaml",
            "`rate_limiter` of the football collector; counts before `api.yaml`",
            {"rate_limiter": {**_LIMITS, "redis_key_prefix": Inert(legacy.NO_REDIS)}},
            # In the original, the limits of api.yaml had no effect.
            overrides="api.yaml",
        ),
        LegacyFile(
            "jobs/*.yaml",
            "`season`, `tracked_leagues`, `fixtures_fetch_mode`, `injuries_fetch_mode`",
            {
                "fixtures_fetch_mode": "football.fixtures_fetch_mode",
                "injuries_fetch_mode": "football.injuries_fetch_mode",
                "tracked_leagues": "football.tracked_leagues",
                "season": ItemDefault("football.tracked_leagues", "season"),
                "backfill": Inert("each tracked league is backfilled in its own seasons."),
            },
        ),
    ),
    file_variables={
        "API_FOOTBALL_API_CONFIG": "api.yaml",
        "API_FOOTBALL_RATE_LIMITER_CONFIG": "rate_limiter.yaml",
        "API_FOOTBALL_DAILY_CONFIG": "jobs/daily.yaml",
        "API_FOOTBALL_JOBS_DIR": "jobs",
    },
    retired={
        "REDIS_URL": legacy.NO_REDIS,
        "ENABLE_LIVE_LOOP": _LIVE,
        "API_FOOTBALL_LIVE_CONFIG": _LIVE,
        "API_FOOTBALL_LEAGUE_OVERRIDES_CONFIG": _LEAGUES,
        "COLLECTOR_LOG_FILE": _RUNS,
        "MCP_LOG_TAIL_LINES": _RUNS,
        "MCP_HOST_PORT": "publishing a port is the container's business; ours is FASTMCP_PORT.",
        "VENUES_BACKFILL_MAX_PER_RUN": "venues come with teams and fixtures.",
        "DAILY_FIXTURES_GLOBAL_MAX_PAGES": "a day's fixtures are one answer without pages.",
        "READ_API_BASIC_USER": legacy.KEYS,
        "READ_API_BASIC_PASSWORD": legacy.KEYS,
        "READ_API_IP_ALLOWLIST": legacy.KEYS,
        "READ_API_DEFAULT_SEASON": "each tracked league carries its own season.",
        "DAILY_QUOTA": _PLAN,
        "MINUTE_QUOTA": _PLAN,
    },
    retired_files={
        "coverage.yaml": "coverage is computed from what the API says it covers.",
        "scope_policy.yaml": "the scope comes from the coverage flags of /leagues.",
        "league_overrides.yaml": _LEAGUES,
        "resolved_tracked_leagues.yaml": _TRACKED,
        "unresolved_suggestions.yaml": _TRACKED,
        "read_api_v2.yaml": "the API is described by the serve section.",
        "nocodb_table_map.yaml": "the tables are PostgreSQL's own.",
    },
    retired_job_types={"live_loop": _LIVE},
)
