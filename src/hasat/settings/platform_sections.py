"""The sections of the platform: database, HTTP, callers, jobs, logs, archives, webhooks, tools."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hasat.settings import types
from hasat.settings.events import EventName
from hasat.settings.types import Section


class Database(Section):
    """PostgreSQL: your server, or the embedded one."""

    url: types.DatabaseUrl | None = Field(
        default=None, description="The server to use; without it Hasat starts one under home."
    )
    read_url: types.DatabaseUrl | None = Field(
        default=None,
        description="A standby of that server, from which `hasat serve` reads what may be a "
        "moment old.",
    )
    binaries: types.Folder | None = Field(
        default=None, description="The bin folder of a PostgreSQL for the embedded server."
    )
    pool_size: int = Field(default=10, ge=1, le=1000, description="Connections a process may hold.")
    frozen_seconds: float = Field(
        default=30.0,
        ge=3,
        le=300,
        description="How long a frozen or unreachable process holds its database locks.",
    )
    response_seconds: float = Field(
        default=5.0,
        ge=0.2,
        le=60,
        description="How long `hasat serve` waits for a response of a given server before it asks "
        "whether it is alive; after the same time again requests get a 503.",
    )


class Serve(Section):
    """The HTTP server of `hasat serve` and `hasat up`."""

    host: types.Host = Field(
        default="127.0.0.1",
        description="Address to listen on; any other than this machine's own needs keys.",
    )
    port: types.Port = Field(default=8787, description="Port to listen on.")
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve the port together, each with its own database "
        "connections; as many as the machine has cores is a good number.",
    )
    allowed_hosts: tuple[types.Host, ...] = Field(
        default=(), description="Host names that requests may use besides the address itself."
    )
    requests_per_minute: int = Field(
        default=600,
        ge=0,
        le=1_000_000,
        description="Requests that a key or client without a limit of its own, or an address, "
        "may make in a minute; 0 for any.",
    )
    max_connections: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Connections that a process may have open at once; by default three quarters "
        "of the files that it may open beyond 64, at most 10,000.",
    )
    header_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=15),
        description="How long a client may take to send the header of a request.",
    )
    body_timeout: types.UpToTenMinutes = Field(
        default=timedelta(minutes=1),
        description="How long a client may take to send the body of a request.",
    )
    send_timeout: types.UpToTenMinutes = Field(
        default=timedelta(minutes=1),
        description="How long a client may take in nothing of a response.",
    )
    base_map: types.Tiles | None = Field(
        default=None,
        description="Pictures under the parcels' map, as https://host/{z}/{x}/{y}.png; the only "
        "thing that pages ever load from elsewhere.",
    )
    base_map_credit: str = Field(
        default="", description="Whose pictures they are, as their terms want it shown."
    )


class HmacClient(Section):
    """A caller that signs its requests."""

    access_key: types.Name
    secret_key: types.Secret
    name: str = ""
    per_minute: int | None = Field(default=None, ge=0, le=1_000_000)


class Authentication(Section):
    """Callers that sign their requests (X-Access-Key, X-Timestamp, X-Signature)."""

    enabled: bool = Field(
        default=False, description="Ask every caller who they are, on loopback too."
    )
    timestamp_tolerance_seconds: int = Field(
        default=300, ge=1, le=3600, description="How far a signature's time may be from ours."
    )
    clients: tuple[HmacClient, ...] = Field(
        default=(), description="The callers: access_key, secret_key, name and per_minute of each."
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        keys = [client.access_key for client in self.clients]
        if len(keys) > len(set(keys)):
            raise ValueError("two clients share an access_key.")
        return self


class JobOverride(Section):
    """The operator's changes to one job; None and empty keep the default."""

    enabled: bool | None = None
    cron: types.Cron | None = None
    params: Mapping[str, Any] = {}
    mode: Mapping[str, Any] = {}


class Jobs(Section):
    """Schedule and concurrency of jobs."""

    timezone: types.Zone = Field(
        default="Europe/Istanbul", description="The zone in which cron expressions are meant."
    )
    concurrency: int = Field(default=4, ge=1, le=64, description="Jobs a worker runs at once.")
    heartbeat_seconds: float = Field(
        default=5.0, gt=0, le=60, description="How often a worker says that it is alive."
    )
    stalled_seconds: float = Field(
        default=20.0, gt=0, le=3600, description="Silence after which a worker counts as dead."
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Time that running jobs get when a worker is stopped.",
    )
    keep_runs_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Retention of finished runs and quarantined records.",
    )
    keep_audit_days: int = Field(
        default=730, ge=30, le=36500, description="How long audit records are stored."
    )
    job_id: types.Name | None = Field(
        default=None, description="The job that `hasat jobs run` runs when it is given no name."
    )
    schedule: Mapping[str, JobOverride] = Field(
        default={}, description="Changes to single jobs: enabled, cron, params and mode by name."
    )

    @model_validator(mode="after")
    def _alive_between_beats(self) -> Self:
        if self.stalled_seconds <= self.heartbeat_seconds:
            raise ValueError("stalled_seconds must be longer than heartbeat_seconds.")
        return self


class Log(Section):
    """Logging to stderr and to a file."""

    level: types.LogLevel = Field(default="INFO", description="The least severe lines to write.")
    format: Annotated[
        Literal["auto", "console", "json"], types.one_of("auto", "console", "json", text="console")
    ] = Field(
        default="auto", description="Text for people, JSON for machines; auto looks at stderr."
    )
    file: types.File | None = Field(
        default=None, description="A file that gets every line as well."
    )


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


class History(Section):
    """The past states of records."""

    retention: types.Retention = Field(
        default=timedelta(days=3653),
        description="How long past states are stored, independently of how long changes are: ten "
        "years.",
    )


class Receipts(Section):
    """Signed receipts of answers."""

    issuer: types.Name = Field(
        default="hasat", description="Who issues them: the name or address of this installation."
    )
    key: types.Secret | None = Field(
        default=None,
        description="The Ed25519 private key that signs them: PEM, or 32 bytes in base64. Without "
        "it each home creates its own, receipt-key.pem.",
    )
    retention: types.Retention = Field(
        default=timedelta(days=3653),
        description="How long receipts are stored, at least 30 days: ten years.",
    )


class Slack(Section):
    """Messages to a Slack channel."""

    enabled: bool = Field(default=False, description="Send messages to Slack.")
    webhook_url: types.Secret | None = Field(default=None, description="Slack's incoming webhook.")
    channel: types.Name | None = Field(
        default=None, description="Another channel than the webhook's own."
    )
    username: types.Name = Field(default="Hasat", description="The sender's name in the channel.")
    notify_on: tuple[EventName, ...] = Field(
        default=(), description="Events to send; none means all but DatasetChanged."
    )


class Http(Section):
    """Signed HTTP webhooks."""

    enabled: bool = Field(default=False, description="Send messages by HTTP.")
    url: types.SecretUrl | None = Field(default=None, description="The address that gets them.")
    secret: types.Secret | None = Field(default=None, description="The key that signs them.")
    timeout_seconds: float = Field(default=10.0, gt=0, le=300, description="How long one may take.")
    notify_on: tuple[EventName, ...] = Field(
        default=(), description="Events to send; none means all but DatasetChanged."
    )


class Endpoint(Section):
    """An additional endpoint in the format of `http` or `slack`."""

    name: types.Name
    url: types.SecretUrl
    format: Annotated[Literal["http", "slack"], types.one_of("http", "slack")] = "http"
    secret: types.Secret | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    notify_on: tuple[EventName, ...] = ()


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


class Smtp(Section):
    """E-mail to the channels of watch lists."""

    url: types.SmtpUrl | None = Field(
        default=None, description="The mail server; without it no e-mail is sent."
    )
    sender: types.Mailbox | None = Field(
        default=None, description="The sender's address, as in `Hasat <hasat@example.com>`."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.url is not None and self.sender is None:
            raise ValueError("url needs sender (HASAT_SMTP_FROM).")
        return self


class Telegram(Section):
    """Messages of a Telegram bot to the channels of watch lists."""

    token: types.Secret | None = Field(default=None, description="The token of the bot.")
    base_url: types.HttpUrl = Field(
        default="https://api.telegram.org", description="Where the Bot API is."
    )


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


class Replica(Section):
    """Replicas: `hasat replica`."""

    key: types.Secret | None = Field(
        default=None, description="The API key to show to the server that is followed."
    )


class Mcp(Section):
    """Tools for assistants (Model Context Protocol)."""

    transport: Annotated[
        Literal["stdio", "streamable-http", "sse"],
        types.one_of("stdio", "streamable-http", "sse", http="streamable-http"),
    ] = Field(default="stdio", description="How `hasat mcp` talks.")
    host: types.Host = Field(
        default="127.0.0.1", description="Address to listen on when not stdio."
    )
    port: types.Port = Field(default=8000, description="Port to listen on when not stdio.")
    mount_path: types.MountPath = Field(default="/mcp", description="The path of the endpoint.")


class Demo(Section):
    """The demo; `hasat demo` sets this section."""

    began: types.Moment | None = Field(
        default=None, description="When the demo's story began; shows it on the overview."
    )
    started: types.Moment | None = Field(
        default=None, description="When the demo was last started; its story stood still before."
    )
    upstreams: str | None = Field(
        default=None, description="Address of its simulated upstreams, which repeat scenes."
    )
