"""Names and file formats of earlier systems, which Hasat accepts unchanged.

The names of the platform's own settings are here; a source declares its own in its section.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hasat.messages import msg


@dataclass(frozen=True)
class Inert:
    """A key that is accepted without an effect, and the reason."""

    because: str


@dataclass(frozen=True)
class Refused:
    """A key that is rejected, and what to do instead."""

    because: str


@dataclass(frozen=True)
class ItemDefault:
    """A key whose value is the default of a field in the items of a list in the same file."""

    key: str
    field: str


Target: TypeAlias = "str | Inert | Refused | ItemDefault | Shape"
Shape: TypeAlias = Mapping[str, Target]
"""A file's keys: each leads to a dotted key, to deeper keys, or nowhere."""


@dataclass(frozen=True)
class LegacyFile:
    """A file of the configuration folder in the format of an earlier system."""

    name: str
    """``jobs/*.yaml`` is every file of that folder; several declarations add up."""
    description: str
    shape: Shape
    overrides: str | None = None
    """The file whose values give way to those of this one."""


@dataclass(frozen=True)
class LegacyNames:
    """Names and files of an earlier system; keys are dotted keys from the root of the tree."""

    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dotted key -> names in the environment, in order of precedence."""
    variable_names: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> the setting that names the variable with its value."""
    variable_defaults: Mapping[str, str] = field(default_factory=dict)
    """The value of a variable that is not set, where Hasat composes a setting from several."""
    files: tuple[LegacyFile, ...] = ()
    file_variables: Mapping[str, str] = field(default_factory=dict)
    """Variable -> the file, or the folder `jobs`, whose path it names."""
    retired: Mapping[str, str] = field(default_factory=dict)
    """Variable without an effect -> the reason; ``X__*`` is a whole section."""
    retired_files: Mapping[str, str] = field(default_factory=dict)
    retired_job_types: Mapping[str, str] = field(default_factory=dict)


NO_REDIS = "Hasat needs no Redis; what is shared is in PostgreSQL."
KEYS = "callers are known by keys (`hasat keys create`) or by signature (authentication.clients)."
POSTGRES = "POSTGRES_*"
CLIENTS = "Authentication__Clients__*"
JOB_FILES = "jobs/*.yaml"

PLATFORM = LegacyNames(
    environment={
        "database.url": ("DATABASE_URL", POSTGRES, "ConnectionStrings__DefaultConnection"),
        "serve.port": ("READ_API_PORT",),
        "authentication.enabled": ("Authentication__Enabled",),
        "authentication.timestamp_tolerance_seconds": (
            "Authentication__TimestampToleranceSeconds",
        ),
        "authentication.clients": (CLIENTS,),
        "jobs.timezone": ("SCHEDULER_TIMEZONE",),
        "jobs.job_id": ("JOB_ID",),
        "log.level": ("LOG_LEVEL", "FASTMCP_LOG_LEVEL"),
        "log.file": ("LOG_FILE",),
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
        "mcp.transport": ("MCP_TRANSPORT",),
        "mcp.host": ("FASTMCP_HOST",),
        "mcp.port": ("FASTMCP_PORT",),
        "mcp.mount_path": ("MCP_MOUNT_PATH",),
    },
    files=(LegacyFile(JOB_FILES, "`jobs`", {"jobs": "jobs"}),),
    retired={"Serilog__*": "set log.level and log.format instead."},
)

_DESCRIBES = "it only describes the job; what the job does is built in."
JOB: Shape = {
    "enabled": "enabled",
    "params": "params",
    "mode": "mode",
    "interval": {
        "cron": "cron",
        "type": Inert(msg("times are always given by cron.")),
        "seconds": Refused(msg("write the times as interval.cron.")),
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


_CLIENT_FIELDS = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "name": "name",
    "perminute": "per_minute",
}


def client_field(name: str) -> str:
    """Return Hasat's name for a field of a client in the .NET service's settings."""
    return _CLIENT_FIELDS.get(name.replace("_", "").casefold(), name)
