"""The branches that belong to the platform: database, HTTP, callers, jobs, logs, tools."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hasat.settings import types
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
        description="Connections that may be open at once; by default three quarters of the files "
        "that the process may open beyond 64, at most 10,000.",
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
