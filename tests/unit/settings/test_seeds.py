"""The names, shapes and defaults of the systems that Hasat takes over from work as they were."""

from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from hasat.settings import Settings, load_settings
from hasat.settings.dsn import compose_url, password_in
from hasat.settings.tree import leaves
from hasat.settings.types import format_duration, parse_duration
from hasat.sources.football.settings import League

HERE = Path("/nowhere")


def load(**environ: str) -> Settings:
    return load_settings({}, {"HASAT_HOME": "/nowhere", **environ}, HERE)


def database(**environ: str) -> str:
    url = load(**environ).database.url
    assert url is not None
    return url.get_secret_value()


def test_defaults_are_the_seeds_defaults() -> None:
    s = load()
    assert s.gib.pk_list_url == "https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserPkListxml.zip"
    assert s.gib.gb_list_url == "https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserGbListxml.zip"
    assert (s.gib.batch_size, s.gib.download_timeout) == (25_000, timedelta(minutes=10))
    assert (s.gib.change_retention_days, s.gib.max_allowed_removal_percent) == (30, 10)
    assert (s.archives.retention_days, s.archives.base_path) == (7, HERE / "archives")
    assert (s.authentication.enabled, s.authentication.timestamp_tolerance_seconds) == (False, 300)
    assert (s.tkgm.single_timeout, s.tkgm.batch_timeout) == (timedelta(0, 15), timedelta(0, 60))
    assert (s.tkgm.batch_size, s.tkgm.cooldown_seconds) == (20, 300)
    limits = s.football.rate_limiter
    assert (limits.daily_limit, limits.token_bucket_per_minute) == (75000, 300)
    assert (limits.minute_limit, limits.usage_target_percent) == (None, 90)
    assert limits.emergency_stop_threshold is None
    assert s.football.backfill.model_dump() == {
        "fixtures_mode": "season",
        "fixtures_max_tasks_per_run": 6,
        "fixtures_max_pages_per_task": 6,
        "fixtures_window_days": 30,
        "standings_max_tasks_per_run": 2,
    }
    assert (s.football.details.backfill_batch, s.football.details.finalize_batch) == (25, 50)
    assert s.football.details.lineups_window_batch == 50
    assert (s.jobs.timezone, s.serve.host, s.serve.port) == ("Europe/Istanbul", "127.0.0.1", 8787)
    assert s.database.url is None


def test_the_environment_of_the_football_collector() -> None:
    s = load(
        API_FOOTBALL_KEY="key",
        API_FOOTBALL_BASE_URL="http://127.0.0.1:9001/",
        SCHEDULER_TIMEZONE="UTC",
        BACKFILL_FIXTURES_WINDOW_DAYS="14",
        FIXTURE_DETAILS_STALE_MINUTES="20",
        TEAM_STATS_REFRESH_HOURS="12",
        VERIFICATION_MAX_ATTEMPTS="4",
        ONLY_LEAGUE_ID="39",
        JOB_ID="top_scorers_daily",
        LOG_LEVEL="debug",
        MCP_TRANSPORT="sse",
        MCP_MOUNT_PATH="/mcp/",
        FASTMCP_HOST="0.0.0.0",  # noqa: S104 - as that system's containers set it
        FASTMCP_PORT="8001",
        BOOTSTRAP_STATIC_ON_START="0",
    )
    assert s.football.api_key is not None
    assert s.football.api_key.get_secret_value() == "key"
    assert s.football.base_url == "http://127.0.0.1:9001"
    assert s.jobs.timezone == "UTC"
    assert s.football.backfill.fixtures_window_days == 14
    assert (s.football.details.stale_minutes, s.football.team_stats.refresh_hours) == (20, 12)
    assert s.football.verification.max_attempts == 4
    assert (s.football.only_league_id, s.jobs.job_id) == (39, "top_scorers_daily")
    assert s.log.level == "DEBUG"
    assert (s.mcp.transport, s.mcp.port, s.mcp.mount_path) == ("sse", 8001, "/mcp")
    assert s.football.bootstrap_static_on_start is False


@pytest.mark.parametrize(
    "spelling", ["GibEndpoints__BatchSize", "GIBENDPOINTS__BATCHSIZE", "gibendpoints:batchsize"]
)
def test_names_of_the_dotnet_service_in_any_spelling(spelling: str) -> None:
    s = load(**{spelling: "500"})
    assert (s.gib.batch_size, s.origin("gib.batch_size").where) == (500, spelling)


def test_the_environment_of_the_dotnet_service(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-file\n", encoding="utf-8")
    s = load(
        GibEndpoints__DownloadTimeout="00:05:00",
        GibEndpoints__MaxAllowedRemovalPercent="2.5",
        HealthChecks__MaxSyncStalenessHours="48",
        ArchiveStorage__Provider="s3",
        ArchiveStorage__BucketName="lists",
        Authentication__Enabled="True",
        Authentication__Clients__1__AccessKey="b",
        Authentication__Clients__1__SecretKey_FILE=str(secret),
        Authentication__Clients__0__AccessKey="a",
        Authentication__Clients__0__SecretKey="s",
        Authentication__Clients__0__Name="first",
        Webhooks__Slack__NotifyOn__0="SyncFailed",
        Webhooks__Slack__NotifyOn__1="syncpartial",
        Webhooks__Http__NotifyOn="SyncCompleted, SyncFailed",
        ASPNETCORE_ENVIRONMENT="Staging",
    )
    assert s.gib.download_timeout == timedelta(minutes=5)
    assert (s.gib.max_allowed_removal_percent, s.gib.max_sync_staleness_hours) == (2.5, 48)
    assert (s.archives.provider, s.archives.bucket_name) == ("S3", "lists")
    assert [client.access_key for client in s.authentication.clients] == ["a", "b"]
    assert s.authentication.clients[1].secret_key.get_secret_value() == "from-file"
    assert s.webhooks.slack.notify_on == ("SyncFailed", "SyncPartial")
    assert s.webhooks.http.notify_on == ("SyncCompleted", "SyncFailed")
    assert s.webhooks.environment == "Staging"


def test_the_database_is_found_by_each_of_its_names() -> None:
    parts = {"POSTGRES_HOST": "db", "POSTGRES_PORT": "6543", "POSTGRES_USER": "u"}
    parts |= {"POSTGRES_PASSWORD": "p@s/s: #?", "POSTGRES_DB": "foot ball"}
    dotnet = {"ConnectionStrings__DefaultConnection": 'Host=n;User Id=u;Password="a;b";Database=g'}
    assert database(**parts, **dotnet) == (
        "postgresql://u:p%40s%2Fs%3A%20%23%3F@db:6543/foot%20ball"
    )
    assert database(**dotnet) == "postgresql://u:a%3Bb@n:5432/g"
    assert database(**parts, DATABASE_URL="postgresql+psycopg2://x/y") == "postgresql://x/y"
    assert database(DATABASE_URL="postgres://x/y", HASAT_DATABASE_URL="postgresql://o/y") == (
        "postgresql://o/y"
    )


def test_parts_of_a_database_without_a_host_have_no_effect_and_are_mentioned() -> None:
    s = load(POSTGRES_PASSWORD="p", POSTGRES_DB="d")
    assert s.database.url is None
    assert s.remarks == (
        "POSTGRES_HOST is not set, so these have no effect: POSTGRES_PASSWORD, POSTGRES_DB.",
    )


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(user=_TEXT, password=_TEXT, database=_TEXT)
def test_a_composed_url_keeps_every_part(user: str, password: str, database: str) -> None:
    url = compose_url({"host": "h", "user": user, "password": password, "database": database})
    parts = urlsplit(url)
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == (user, password)
    assert unquote(parts.path[1:]) == database
    assert password in password_in(url)


def test_a_connection_string_with_tls_and_a_socket() -> None:
    text = "Server=db;SSL Mode=VerifyFull;Root Certificate=/ca.pem;Pooling=true;Username=u"
    assert database(HASAT_DATABASE_URL=text) == (
        "postgresql://u@db:5432/?sslmode=verify-full&sslrootcert=%2Fca.pem"
    )
    assert database(POSTGRES_HOST="/run/pg", POSTGRES_DB="d") == (
        "postgresql://postgres@:5432/d?host=%2Frun%2Fpg"
    )
    assert database(POSTGRES_HOST="::1", POSTGRES_DB="d") == "postgresql://postgres@[::1]:5432/d"


API_YAML = """\
api:
  base_url: "https://v3.football.api-sports.io"
  api_key_env: "MY_KEY"
  timeout_seconds: 30
  default_timezone: "UTC"
rate_limits:
  daily_limit: 75000
  minute_limit: 300
  minute_soft_limit: 280
  emergency_stop_threshold: 7500
logging:
  level: "WARNING"
  format: "json"
  destination: "stdout"
"""
RATE_LIMITER_YAML = """\
rate_limiter:
  token_bucket_per_minute: 300
  minute_soft_limit: 240
  daily_limit: 75000
  emergency_stop_threshold: 7500
  redis_key_prefix: "api_football"
"""
DAILY_YAML = """\
fixtures_fetch_mode: per_tracked_leagues  # global_by_date | per_tracked_leagues
season: 2025
jobs:
- job_id: daily_standings
  type: incremental_daily
  enabled: true
  priority: HIGH
  endpoint: /standings
  params:
    league: null
    season: null
  interval:
    type: cron
    cron: "0-59/5 * * * *"
  mode:
    max_leagues_per_run: 30
  target_layer: raw+core
  dependencies:
  - bootstrap_leagues
  coverage_target:
    endpoint: /standings
    min_records: 1
- job_id: stale_live_refresh
  type: incremental_daily
  enabled: false
  params:
    stale_threshold_minutes: 15
    batch_size: 20
    scope_source: daily
  interval:
    type: cron
    cron: '*/5 * * * *'
tracked_leagues:
- id: 39
  name: Premier League
- id: 516
  name: No
  season: 2024
"""
STATIC_YAML = """\
jobs:
  - job_id: "bootstrap_leagues"
    type: "static_bootstrap"
    enabled: false
    params: {season: null}
    interval: {type: "cron", cron: "0 2 * * 0"}
    filters: {tracked_leagues: []}
"""
LIVE_YAML = """\
jobs:
  - job_id: "live_fixtures_all"
    type: "live_loop"
    interval: {type: "interval", seconds: 15}
"""


def test_the_files_of_the_football_collector_as_they_were(tmp_path: Path) -> None:
    jobs = tmp_path / "config" / "jobs"
    jobs.mkdir(parents=True)
    for name, text in {
        "api.yaml": API_YAML,
        "rate_limiter.yaml": RATE_LIMITER_YAML,
        "scope_policy.yaml": "version: 1",
        "jobs/daily.yaml": DAILY_YAML,
        "jobs/static.yaml": STATIC_YAML,
        "jobs/live.yaml": LIVE_YAML,
    }.items():
        (tmp_path / "config" / name).write_text(text, encoding="utf-8")
    s = load_settings({}, {"HASAT_HOME": str(tmp_path), "MY_KEY": "k"}, tmp_path)

    assert s.football.tracked_leagues == (
        League(id=39, name="Premier League", season=2025),
        League(id=516, name="No", season=2024),
    )
    assert s.football.fixtures_fetch_mode == "per_tracked_leagues"
    assert s.football.rate_limiter.minute_soft_limit == 240
    assert s.football.rate_limiter.minute_limit == 300
    assert s.football.api_key is not None
    assert s.football.api_key.get_secret_value() == "k"
    assert (s.log.level, s.log.format) == ("WARNING", "json")
    standings = s.jobs.schedule["daily_standings"]
    assert (standings.enabled, standings.cron) == (True, "0-59/5 * * * *")
    assert standings.params == {"league": None, "season": None}
    assert standings.mode == {"max_leagues_per_run": 30}
    assert s.jobs.schedule["stale_live_refresh"].params == {
        "stale_threshold_minutes": 15,
        "batch_size": 20,
        "scope_source": "daily",
    }
    assert s.jobs.schedule["bootstrap_leagues"].enabled is False
    assert "live_fixtures_all" not in s.jobs.schedule
    assert s.origin("jobs.schedule.daily_standings.cron").where == "config/jobs/daily.yaml:14"
    remarks = "\n".join(s.remarks)
    assert "football.rate_limiter.minute_soft_limit: config/rate_limiter.yaml:3 counts" in remarks
    assert "the job live_fixtures_all has no effect" in remarks
    assert "config/scope_policy.yaml has no effect" in remarks


def test_the_collectors_files_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "my-limits.yaml").write_text(RATE_LIMITER_YAML, encoding="utf-8")
    (tmp_path / "my-jobs").mkdir()
    (tmp_path / "my-jobs" / "static.yaml").write_text(STATIC_YAML, encoding="utf-8")
    environ = {"HASAT_HOME": str(tmp_path), "API_FOOTBALL_JOBS_DIR": "my-jobs"}
    environ["API_FOOTBALL_RATE_LIMITER_CONFIG"] = str(tmp_path / "my-limits.yaml")
    s = load_settings({}, environ, tmp_path)
    assert s.football.rate_limiter.minute_soft_limit == 240
    assert "bootstrap_leagues" in s.jobs.schedule


def test_the_dotnet_services_appsettings_in_gib_yaml(tmp_path: Path) -> None:
    (tmp_path / "gib.yaml").write_text(
        '{"GibEndpoints": {"BatchSize": 10, "DownloadTimeout": "00:10:00"}, "Caching": {"X": 1},'
        '"ArchiveStorage": {"BasePath": "/data/gib-archives", "BucketName": ""},'
        '"Authentication": {"Clients": [{"AccessKey": "a", "SecretKey": "s", "Name": "n"}]},'
        '"ConnectionStrings": {"DefaultConnection": "Host=h;Username=u;Database=d"}}',
        encoding="utf-8",
    )
    s = load_settings({}, {"HASAT_HOME": "/nowhere", "HASAT_CONFIG": str(tmp_path)}, tmp_path)
    assert (s.gib.batch_size, s.archives.base_path) == (10, Path("/data/gib-archives"))
    assert s.authentication.clients[0].access_key == "a"
    assert s.database.url is not None
    assert s.database.url.get_secret_value() == "postgresql://u@h:5432/d"


def test_names_without_a_meaning_are_remarked_and_nothing_more() -> None:
    s = load(REDIS_URL="redis://x", Caching__Provider="Redis", ENABLE_LIVE_LOOP="1")
    assert [remark.partition(" ")[0] for remark in s.remarks] == [
        "Caching__Provider",
        "ENABLE_LIVE_LOOP",
        "REDIS_URL",
    ]


def test_a_slip_in_a_dotnet_name_is_remarked() -> None:
    s = load(GibEndpoints__BatchSzie="5")
    assert s.remarks == (
        "GibEndpoints__BatchSzie has no effect: there is no such setting; "
        "did you mean 'GibEndpoints__BatchSize'?",
    )


def test_no_two_settings_share_a_name() -> None:
    names = [name for leaf in leaves().values() for name in leaf.names]
    names += [f"{n}_FILE" for leaf in leaves().values() if leaf.secret for n in leaf.names]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:10:00", 600),
        ("01:00", 3600),
        ("1.00:00:00", 86400),
        ("00:00:01.5", 1.5),
        ("600", 600),
        ("0.5", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("1 h", 3600),
        ("200ms", 0.2),
    ],
)
def test_forms_of_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@given(st.integers(min_value=0, max_value=10**10))
def test_a_shown_duration_can_be_set_again(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


def test_several_hosts_for_failover_in_each_form() -> None:
    url = "postgresql://u:p@a:5432,b:5433/hasat?target_session_attrs=read-write"
    assert database(HASAT_DATABASE_URL=url) == url
    text = "host=a,b port=5432,5433 user=u password='p\\' w' dbname=hasat"
    found = database(HASAT_DATABASE_URL=f"{text} target_session_attrs=read-write")
    assert conninfo_to_dict(found) == {
        "host": "a,b",
        "port": "5432,5433",
        "user": "u",
        "password": "p' w",
        "dbname": "hasat",
        "target_session_attrs": "read-write",
    }
