"""The branches that belong to the sources, and to the handing out of what they bring."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hasat.settings import types
from hasat.settings.types import Section


class Gib(Section):
    """The e-Fatura and e-İrsaliye taxpayer lists."""

    pk_list_url: types.HttpUrl = Field(
        default="https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserPkListxml.zip",
        description="The list of mailboxes (PK); the default is GIB's test list.",
    )
    gb_list_url: types.HttpUrl = Field(
        default="https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserGbListxml.zip",
        description="The list of senders (GB); the default is GIB's test list.",
    )
    batch_size: int = Field(
        default=25_000,
        ge=1,
        le=100_000,
        description="About how many taxpayers a sync merges at a time.",
    )
    download_timeout: types.UpToAnHour = Field(
        default=timedelta(minutes=10), description="How long the download of a list may take."
    )
    change_retention_days: types.Days = Field(
        default=30, description="How long changes can be read."
    )
    max_allowed_removal_percent: types.Percent = Field(
        default=10.0, description="Removed taxpayers above which the guard holds a run."
    )
    max_modified_percent: types.Percent = Field(
        default=20.0, description="Modified taxpayers above which the guard holds a run."
    )
    max_added_percent: types.Percent = Field(
        default=20.0, description="Added taxpayers above which the guard holds a run."
    )
    max_list_users_drop_percent: types.Percent = Field(
        default=10.0, description="Fewer users in one list than last time, above which it is held."
    )
    max_list_bytes_drop_percent: types.Percent = Field(
        default=15.0,
        description="Fewer bytes in the usual records of one list than last time, above which it "
        "is held.",
    )
    max_list_users_growth_percent: types.Growth | None = Field(
        default=None,
        description="More users in one list than last time, above which it is held; "
        "max_added_percent where it is not set.",
    )
    max_list_bytes_growth_percent: types.Growth = Field(
        default=50.0,
        description="More bytes of XML per user in one list than last time, above which it is "
        "held.",
    )
    max_rejects_percent: types.Percent = Field(
        default=1.0, description="Unreadable users in one list above which the guard holds a run."
    )
    max_sync_staleness_hours: int = Field(
        default=24,
        ge=1,
        le=8760,
        description="Age of the last good sync after which health is degraded.",
    )
    search_personal_numbers: bool = Field(
        default=True,
        description="Whether a search shows taxpayers with eleven-digit (personal) numbers.",
    )


class TkgmRegistry(Section):
    """Direct access to the land registry, for a machine that has permission."""

    url: types.ApiUrl | None = Field(
        default=None,
        description="Its address, such as https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api; "
        "without it, it is never asked directly.",
    )
    daily: types.Count = Field(
        default=1000, description="Requests a day, in Turkish time, that may leave from here."
    )
    per_minute: int = Field(
        default=120, ge=1, le=6000, description="Requests a minute, evenly spaced."
    )
    egress: types.Name | None = Field(
        default=None,
        description="The address that requests leave from, by a name; who has the same one "
        "shares its day. Default the machine's name.",
    )


class TkgmEndpoint(Section):
    """The server of `hasat tkgm endpoint`, which forwards requests to the registry."""

    host: types.Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: types.Port = Field(default=8790, description="Port to listen on.")
    api_key: types.Secret | None = Field(
        default=None, description="What X-API-Key must say; the api_key of workers.json."
    )


class Tkgm(Section):
    """Cadastral parcels, requested point by point through a pool of endpoints."""

    workers_file: types.File | None = Field(
        default=None, description="The workers.json that lists the endpoints and their key."
    )
    single_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=15), description="How long the answer for one point may take."
    )
    batch_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=60), description="How long the answer for a batch may take."
    )
    batch_size: int = Field(default=20, ge=1, le=20, description="Points asked in one request.")
    cooldown_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="Rest of an endpoint after a 403 without a reason.",
    )
    daily_per_endpoint: types.Count = Field(
        default=2000, description="Points a day for an endpoint that declares no budget of its own."
    )
    min_interval_ms: int = Field(
        default=200, ge=0, le=60_000, description="Least time between two requests to one endpoint."
    )
    hedge_percent: float = Field(
        default=2.0,
        ge=0,
        le=20,
        description="Second tries for slow answers, as a share; 0 for none.",
    )
    parcel_age: types.Age = Field(
        default=timedelta(days=1), description="Age up to which a known parcel is not asked again."
    )
    not_found_age: types.Age = Field(
        default=timedelta(hours=1), description="Age up to which an empty point is not asked again."
    )
    lists_age: types.Age = Field(
        default=timedelta(days=30),
        description="Age up to which administrative lists are not asked again.",
    )
    user_agent: types.Name = Field(default="Hasat", description="What requests call themselves.")
    registry: TkgmRegistry = TkgmRegistry()
    endpoint: TkgmEndpoint = TkgmEndpoint()


class League(Section):
    """A tracked competition in one season, by id or by a unique name."""

    id: types.Id | None = None
    name: str = ""
    country: str = ""
    season: types.Year

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.id is None and not self.name.strip():
            raise ValueError("a league needs an id or a name.")
        return self


class RateLimiter(Section):
    """The plan's limits; lower limits in the API's headers take precedence."""

    token_bucket_per_minute: types.Count = Field(
        default=300, description="Requests that are never exceeded in a minute."
    )
    minute_soft_limit: types.Count = Field(
        default=280, description="Requests in a minute to work at."
    )
    minute_limit: types.Count | None = Field(
        default=None,
        description="Requests in a minute that the plan allows, if fewer than the bucket's.",
    )
    daily_limit: int = Field(
        default=75_000, ge=1, le=10_000_000, description="Requests in a day that the plan allows."
    )
    emergency_stop_threshold: types.Requests | None = Field(
        default=None,
        description="Remaining requests at which all stops; default a tenth of the day.",
    )
    usage_target_percent: types.Percent = Field(
        default=90.0, description="Share of the day's requests to spend."
    )
    opening_minutes: int = Field(
        default=10,
        ge=0,
        le=120,
        description="Minutes after the day's start in which only urgent work asks.",
    )
    shadow: bool = Field(
        default=False, description="Only count, and note what would have been refused."
    )

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if (self.emergency_stop_threshold or 0) >= self.daily_limit:
            raise ValueError(
                "emergency_stop_threshold must be below daily_limit, or nothing is ever sent."
            )
        return self


class Backfill(Section):
    """Backfill of earlier seasons."""

    fixtures_mode: Literal["season", "windows"] = Field(
        default="season",
        description="A league's season in one request, or window by window as the original has it.",
    )
    fixtures_max_tasks_per_run: types.Count = Field(default=6, description="League seasons a run.")
    fixtures_max_pages_per_task: types.Count = Field(
        default=6, description="Windows a league season."
    )
    fixtures_window_days: types.Days = Field(default=30, description="Days a window covers.")
    standings_max_tasks_per_run: types.Count = Field(
        default=2, description="League seasons that a run of the standings backfill takes up."
    )


class Details(Section):
    """Players, events, statistics and line-ups of matches."""

    fetch_mode: Literal["by_ids", "per_fixture"] = Field(
        default="by_ids",
        description="Twenty matches a request, or four requests a match as the original has it.",
    )
    backfill_batch: types.Count = Field(
        default=25, description="Matches a run of the 90-day backfill."
    )
    season_backfill_batch: types.Count = Field(
        default=12, description="Matches a run of the backfill of whole seasons."
    )
    finalize_batch: types.Count = Field(default=50, description="Just finished matches a run.")
    lineups_window_batch: types.Count = Field(
        default=50, description="Matches about to begin a run, for their line-ups."
    )
    stale_minutes: types.Count = Field(
        default=15, description="Minutes before kick-off from which line-ups are asked for."
    )


class TeamStats(Section):
    """Statistics of teams."""

    max_tasks_per_run: types.Count = Field(default=50, description="Teams a run.")
    refresh_hours: types.Count = Field(
        default=24, description="Age at which a team is asked again."
    )


class Verification(Section):
    """Verification of inferred scores."""

    max_attempts: types.Count = Field(
        default=3, description="Questions before a match is left to rest."
    )
    cooldown_hours: types.Count = Field(default=24, description="Time between two such questions.")
    min_daily_quota: types.Requests = Field(
        default=50_000, description="Remaining requests below which nothing is verified."
    )


class Football(Section):
    """API-Football v3."""

    api_key: types.Secret | None = Field(default=None, description="Your key for the API.")
    api_key_env: types.VariableName = Field(
        default="API_FOOTBALL_KEY", description="The environment variable that holds the key."
    )
    base_url: types.ApiUrl = Field(
        default="https://v3.football.api-sports.io", description="Where the API is."
    )
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=300, description="How long an answer may take."
    )
    default_timezone: types.Zone = Field(
        default="UTC", description="The zone in which the API is asked for a date."
    )
    change_retention_days: types.Days = Field(
        default=90, description="Retention of changes to matches, tables and players."
    )
    raw_retention_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Age at which a whole month of answers is moved to a Parquet file.",
    )
    tracked_leagues: tuple[League, ...] = Field(
        default=(),
        description="The competitions to follow: id and season of each, or name, country and "
        "season.",
    )
    fixtures_fetch_mode: Annotated[
        Literal["global_by_date", "per_tracked_leagues"],
        types.one_of(
            **{"global-by-date": "global_by_date", "per-tracked-leagues": "per_tracked_leagues"}
        ),
    ] = Field(
        default="global_by_date",
        description="One request a day for all leagues, or one for each league.",
    )
    injuries_fetch_mode: Annotated[
        Literal["global_by_date", "per_tracked_leagues"],
        types.one_of(
            **{"global-by-date": "global_by_date", "per-tracked-leagues": "per_tracked_leagues"}
        ),
    ] = Field(
        default="global_by_date",
        description="One request a day for all leagues, or one for each league.",
    )
    only_league_id: types.Id | None = Field(
        default=None, description="Restricts jobs to this league; for manual runs."
    )
    bootstrap_static_on_start: bool = Field(
        default=True, description="Ask for countries and time zones at once when there are none."
    )
    rate_limiter: RateLimiter = RateLimiter()
    backfill: Backfill = Backfill()
    details: Details = Details()
    team_stats: TeamStats = TeamStats()
    verification: Verification = Verification()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        seen = [(one.id, one.season) for one in self.tracked_leagues if one.id is not None]
        if twice := sorted({pair for pair in seen if seen.count(pair) > 1}):
            named = ", ".join(f"{league} in season {season}" for league, season in twice)
            raise ValueError(f"tracked_leagues names a league twice: {named}.")
        return self


class Archives(Section):
    """Storage and retention of archives."""

    provider: Annotated[Literal["FileSystem", "S3"], types.one_of("FileSystem", "S3")] = Field(
        default="FileSystem", description="A folder, or a bucket of an S3-compatible store."
    )
    base_path: types.Folder = Field(
        default=Path("archives"), description="The folder for FileSystem; by default in home."
    )
    retention_days: types.Days = Field(default=7, description="Retention of archives.")
    min_interval: types.UpToAWeek = Field(
        default=timedelta(hours=1),
        description="How far apart two archives of a dataset are at least.",
    )
    bucket_name: types.Name | None = Field(default=None, description="The bucket for S3.")
    region: types.Name | None = Field(default=None, description="The bucket's region.")
    service_url: types.HttpUrl | None = Field(
        default=None, description="The address of an S3-compatible store other than Amazon's."
    )
    access_key: types.Secret | None = Field(
        default=None,
        description="The S3 access key; without it the machine's own identity is used.",
    )
    secret_key: types.Secret | None = Field(default=None, description="The S3 secret key.")
    response_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=10),
        description="How long the S3 store may take to respond, and to send each next piece.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider == "S3" and not self.bucket_name:
            raise ValueError("provider S3 needs bucket_name.")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key are needed together.")
        return self


class Slack(Section):
    """Messages to a Slack channel."""

    enabled: bool = Field(default=False, description="Send messages to Slack.")
    webhook_url: types.Secret | None = Field(default=None, description="Slack's incoming webhook.")
    channel: types.Name | None = Field(
        default=None, description="Another channel than the webhook's own."
    )
    username: types.Name = Field(default="Hasat", description="The sender's name in the channel.")
    notify_on: tuple[types.Event, ...] = Field(
        default=(), description="Events to send; none means all but DatasetChanged."
    )


class Http(Section):
    """Signed HTTP webhooks."""

    enabled: bool = Field(default=False, description="Send messages by HTTP.")
    url: types.SecretUrl | None = Field(default=None, description="The address that gets them.")
    secret: types.Secret | None = Field(default=None, description="The key that signs them.")
    timeout_seconds: float = Field(default=10.0, gt=0, le=300, description="How long one may take.")
    notify_on: tuple[types.Event, ...] = Field(
        default=(), description="Events to send; none means all but DatasetChanged."
    )


class Endpoint(Section):
    """An additional endpoint in the format of `http` or `slack`."""

    name: types.Name
    url: types.SecretUrl
    format: Annotated[Literal["http", "slack"], types.one_of("http", "slack")] = "http"
    secret: types.Secret | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    notify_on: tuple[types.Event, ...] = ()


class Webhooks(Section):
    """Webhook notifications."""

    enabled: bool = Field(default=False, description="Send webhooks.")
    service_name: types.Name = Field(default="Hasat", description="The name of this installation.")
    environment: types.Name = Field(
        default="Production", description="What this installation is for."
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(),
        description="More addresses: name, url, format (http or slack), secret, timeout_seconds "
        "and notify_on of each.",
    )
    private_networks: tuple[types.Network, ...] = Field(
        default=(),
        description="Networks that webhooks, redirects of downloads and addresses in the "
        "parameters of queued runs may lead to although they are not public.",
    )
    max_attempts: int = Field(
        default=12, ge=1, le=1000, description="Failed tries after which one is a dead letter."
    )
    max_age: types.Age = Field(
        default=timedelta(days=1), description="Age after which a failed one is not tried again."
    )
    keep_days: types.Days = Field(
        default=30, description="How long what was delivered, or died, can be looked at."
    )
    slack: Slack = Slack()
    http: Http = Http()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = ["slack", "http", *(endpoint.name for endpoint in self.endpoints)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two endpoints are called {', '.join(twice)}.")
        return self

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if self.enabled and self.slack.enabled and self.slack.webhook_url is None:
            raise ValueError("slack.enabled needs slack.webhook_url.")
        if self.enabled and self.http.enabled and self.http.url is None:
            raise ValueError("http.enabled needs http.url.")
        return self


class Nats(Section):
    """Publishing of changes to NATS JetStream."""

    url: types.Secret | None = Field(
        default=None, description="Where NATS is, e.g. nats://127.0.0.1:4222; without it, nowhere."
    )
    credentials: types.File | None = Field(
        default=None, description="The .creds file to show, if the server wants one."
    )
    stream: types.NatsName = Field(
        default="HASAT", description="Streams are called by this, a _ and the dataset's name."
    )
    subject: types.NatsName = Field(
        default="hasat", description="Subjects begin with this: hasat.einvoice.added, for example."
    )
    max_age: types.Age = Field(
        default=timedelta(days=30),
        description="How long streams created by Hasat retain a message.",
    )
    replicas: int = Field(
        default=1, ge=1, le=5, description="Number of replicas of streams created by Hasat."
    )
