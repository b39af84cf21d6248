"""Names and file formats of the three original systems, which Hasat accepts unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Inert:
    """A key that is accepted without an effect, and the reason."""

    because: str


@dataclass(frozen=True)
class Refused:
    """A key that is rejected, and what to do instead."""

    because: str


Target: TypeAlias = "str | Inert | Refused | Shape"
Shape: TypeAlias = Mapping[str, Target]
"""A file's keys: each leads to a dotted key, to deeper keys, or nowhere."""

POSTGRES = "POSTGRES_*"
CLIENTS = "Authentication__Clients__*"

# Dotted key -> names in the environment, in order of precedence.
ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "database.url": ("DATABASE_URL", POSTGRES, "ConnectionStrings__DefaultConnection"),
    "serve.port": ("READ_API_PORT",),
    "authentication.enabled": ("Authentication__Enabled",),
    "authentication.timestamp_tolerance_seconds": ("Authentication__TimestampToleranceSeconds",),
    "authentication.clients": (CLIENTS,),
    "jobs.timezone": ("SCHEDULER_TIMEZONE",),
    "jobs.job_id": ("JOB_ID",),
    "log.level": ("LOG_LEVEL", "FASTMCP_LOG_LEVEL"),
    "log.file": ("LOG_FILE",),
    "gib.pk_list_url": ("GibEndpoints__PkListUrl",),
    "gib.gb_list_url": ("GibEndpoints__GbListUrl",),
    "gib.batch_size": ("GibEndpoints__BatchSize",),
    "gib.download_timeout": ("GibEndpoints__DownloadTimeout",),
    "gib.change_retention_days": ("GibEndpoints__ChangeRetentionDays",),
    "gib.max_allowed_removal_percent": ("GibEndpoints__MaxAllowedRemovalPercent",),
    "gib.max_sync_staleness_hours": ("HealthChecks__MaxSyncStalenessHours",),
    "archives.provider": ("ArchiveStorage__Provider",),
    "archives.base_path": ("ArchiveStorage__BasePath",),
    "archives.retention_days": ("ArchiveStorage__RetentionDays",),
    "archives.bucket_name": ("ArchiveStorage__BucketName",),
    "archives.region": ("ArchiveStorage__Region",),
    "archives.service_url": ("ArchiveStorage__ServiceUrl",),
    "archives.access_key": ("ArchiveStorage__AccessKey",),
    "archives.secret_key": ("ArchiveStorage__SecretKey",),
    "webhooks.enabled": ("Webhooks__Enabled",),
    "webhooks.service_name": ("Webhooks__ServiceName", "ASPNETCORE_APPLICATIONNAME"),
    "webhooks.environment": ("Webhooks__Environment", "ASPNETCORE_ENVIRONMENT"),
    "webhooks.slack.enabled": ("Webhooks__Slack__Enabled",),
    "webhooks.slack.webhook_url": ("Webhooks__Slack__WebhookUrl",),
    "webhooks.slack.channel": ("Webhooks__Slack__Channel",),
    "webhooks.slack.username": ("Webhooks__Slack__Username",),
    "webhooks.slack.notify_on": ("Webhooks__Slack__NotifyOn", "Webhooks__Slack__NotifyOn__*"),
    "webhooks.http.enabled": ("Webhooks__Http__Enabled",),
    "webhooks.http.url": ("Webhooks__Http__Url",),
    "webhooks.http.secret": ("Webhooks__Http__Secret",),
    "webhooks.http.timeout_seconds": ("Webhooks__Http__TimeoutSeconds",),
    "webhooks.http.notify_on": ("Webhooks__Http__NotifyOn", "Webhooks__Http__NotifyOn__*"),
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
    "mcp.transport": ("MCP_TRANSPORT",),
    "mcp.host": ("FASTMCP_HOST",),
    "mcp.port": ("FASTMCP_PORT",),
    "mcp.mount_path": ("MCP_MOUNT_PATH",),
}

# Variables that name a file of the football collector, or its folder of jobs.
FILE_VARIABLES: Mapping[str, str] = {
    "API_FOOTBALL_API_CONFIG": "api.yaml",
    "API_FOOTBALL_RATE_LIMITER_CONFIG": "rate_limiter.yaml",
    "API_FOOTBALL_DAILY_CONFIG": "jobs/daily.yaml",
    "API_FOOTBALL_JOBS_DIR": "jobs",
}

_NO_REDIS = "Hasat needs no Redis; what is shared is in PostgreSQL."
_NO_CACHE = "lookups read the committed tables, so there is no cache to set."
_LIVE = "live polling was given up; matches are followed by the stale_* jobs."
_RUNS = "the state of jobs is in the database (`hasat jobs history`), not in a log file."
_KEYS = "callers are known by keys (`hasat keys create`) or by signature (authentication.clients)."

# Names that have no effect, with the reason. ``X__*`` is a whole section.
RETIRED: Mapping[str, str] = {
    "REDIS_URL": _NO_REDIS,
    "Caching__*": _NO_CACHE,
    "Serilog__*": "set log.level and log.format instead.",
    "ENABLE_LIVE_LOOP": _LIVE,
    "API_FOOTBALL_LIVE_CONFIG": _LIVE,
    "API_FOOTBALL_LEAGUE_OVERRIDES_CONFIG": "leagues are resolved from the API's own list.",
    "COLLECTOR_LOG_FILE": _RUNS,
    "MCP_LOG_TAIL_LINES": _RUNS,
    "MCP_HOST_PORT": "publishing a port is the container's business; ours is FASTMCP_PORT.",
    "VENUES_BACKFILL_MAX_PER_RUN": "venues come with teams and fixtures.",
    "DAILY_FIXTURES_GLOBAL_MAX_PAGES": "a day's fixtures are one answer without pages.",
    "READ_API_BASIC_USER": _KEYS,
    "READ_API_BASIC_PASSWORD": _KEYS,
    "READ_API_IP_ALLOWLIST": _KEYS,
    "READ_API_DEFAULT_SEASON": "each tracked league carries its own season.",
    "DAILY_QUOTA": "the limits are in rate_limiter.yaml (football.rate_limiter).",
    "MINUTE_QUOTA": "the limits are in rate_limiter.yaml (football.rate_limiter).",
}
RETIRED_FILES: Mapping[str, str] = {
    "coverage.yaml": "coverage is computed from what the API says it covers.",
    "scope_policy.yaml": "the scope comes from the coverage flags of /leagues.",
    "league_overrides.yaml": "leagues are resolved from the API's own list.",
    "resolved_tracked_leagues.yaml": "tracked_leagues is in jobs/daily.yaml.",
    "unresolved_suggestions.yaml": "tracked_leagues is in jobs/daily.yaml.",
    "read_api_v2.yaml": "the API is described by the serve section.",
    "nocodb_table_map.yaml": "the tables are PostgreSQL's own.",
}

_DESCRIBES = "it only describes the job; what the job does is built in."
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

API_FILE: Shape = {
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
}
RATE_LIMITER_FILE: Shape = {
    "rate_limiter": {**_LIMITS, "redis_key_prefix": Inert(_NO_REDIS)},
}
JOBS_FILE: Shape = {
    "fixtures_fetch_mode": "football.fixtures_fetch_mode",
    "injuries_fetch_mode": "football.injuries_fetch_mode",
    "tracked_leagues": "football.tracked_leagues",
    # The next two are composed from several keys.
    "season": "season",
    "jobs": "jobs",
    "backfill": Inert("each tracked league is backfilled in its own seasons."),
}
JOB: Shape = {
    "enabled": "enabled",
    "params": "params",
    "mode": "mode",
    "interval": {
        "cron": "cron",
        "type": Inert("times are always given by cron."),
        "seconds": Refused("write the times as interval.cron."),
    },
    **{
        name: Inert(_DESCRIBES)
        for name in (
            "type",
            "priority",
            "endpoint",
            "target_layer",
            "dependencies",
            "coverage_target",
            "filters",
        )
    },
}


def dotnet_sections() -> Shape:
    """Return the .NET service's appsettings as keys of a file."""
    shape: dict[str, object] = {
        "Caching": Inert(_NO_CACHE),
        "Serilog": Inert(RETIRED["Serilog__*"]),
        "Authentication": {"Clients": "authentication.clients"},
    }
    for key, names in ENVIRONMENT.items():
        for name in names:
            *branches, last = name.split("__")
            if not branches or last == "*":
                continue
            level = shape
            for branch in branches:
                level = level.setdefault(branch, {})  # type: ignore[assignment]
            level[last] = key
    return shape  # type: ignore[return-value]


_CLIENT_FIELDS = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "name": "name",
    "perminute": "per_minute",
}


def client_field(name: str) -> str:
    """Return Hasat's name for a field of a client in the .NET service's settings."""
    return _CLIENT_FIELDS.get(name.replace("_", "").casefold(), name)


def retired(name: str) -> str | None:
    """Return why a retired variable has no effect, None for others."""
    folded = name.replace(":", "__").casefold()
    for known, sentence in RETIRED.items():
        whole = known.casefold()
        if folded == whole or (whole.endswith("__*") and folded.startswith(whole[:-1])):
            return sentence
    return None
