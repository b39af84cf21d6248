"""Types of settings: how each is parsed from text, validated and shown."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
)

from hasat.clock import zone
from hasat.errors import SettingsError
from hasat.settings.dsn import database_url


@dataclass(frozen=True)
class Says:
    """What a value must look like, in the words of the reference."""

    text: str


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AMOUNTS = re.compile(rf"(?:{_AMOUNT.pattern})+")
_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,7})?))?")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.%]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_duration(value: Any) -> timedelta:
    """Seconds (600), amounts (10m, 1h30m) or the .NET form (00:10:00, 1.00:00:00)."""
    try:
        return _duration(value)
    except OverflowError:
        raise ValueError("is longer than anybody will live") from None


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().lower().replace(" ", "")
    if span := _SPAN.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in span.groups())
        if hours < 24 and minutes < 60 and seconds < 60:
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    elif _AMOUNTS.fullmatch(text):
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _AMOUNT.findall(text)))
    elif re.fullmatch(r"\d+(\.\d+)?", text):
        return timedelta(seconds=float(text))
    raise ValueError("is not a duration such as 600 (seconds), 10m, 1h30m or 00:10:00")


def format_duration(value: timedelta) -> str:
    """The shortest form that `parse_duration` reads back."""
    rest = round(value.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def check_http_url(text: str) -> str:
    """An absolute http or https address without credentials, as it was given."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", text):
        raise ValueError("is not an http or https address")
    if "@" in urlsplit(text).netloc:
        raise ValueError("carries a user name; an address is no place for credentials")
    return text


def check_tiles(text: str) -> str:
    """An address of map tiles, with the places for their numbers."""
    check_http_url(text)
    if missing := [place for place in ("{z}", "{x}", "{y}") if place not in text]:
        raise ValueError(f"has no {missing[0]}")
    if not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", urlsplit(text).netloc):
        raise ValueError("must name its host plainly")
    return text


def check_api_url(text: str) -> str:
    """An https address; plain http only to this machine, so that no key crosses a network."""
    parts = urlsplit(check_http_url(text))
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError("must be https; plain http is for addresses of this machine only")
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_secret_url(secret: SecretStr) -> SecretStr:
    """An address that is a secret itself, as Slack's are."""
    check_http_url(secret.get_secret_value())
    return secret


def check_network(text: str) -> str:
    """A network or a single address."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError("is no network such as 10.0.0.0/8 or fd00::/8") from error


def check_nats_name(text: str) -> str:
    """One token of a NATS subject or stream name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise ValueError("may only have letters, digits, _ and -")
    return text


def check_zone(name: str) -> str:
    """A time zone that exists."""
    try:
        zone(name)
    except (SettingsError, OSError) as error:
        raise ValueError("is no time zone; use an IANA name such as Europe/Istanbul") from error
    return name


def check_cron(text: str) -> str:
    """Five fields that a scheduler understands."""
    from cronsim import CronSim, CronSimError

    if len(text.split()) != 5:
        raise ValueError("is no cron expression of five fields: minute hour day month weekday")
    try:
        CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - only the expression is looked at
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {str(error).lower()}") from error
    return text


def check_host(text: str) -> str:
    """A host name or address without scheme and port."""
    text = text.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(text):
        raise ValueError("is no host name or address; write it without scheme and port")
    return text


def check_mount_path(text: str) -> str:
    if re.search(r"[\s?#]", text):
        raise ValueError("is no URL path")
    return "/" + text.strip("/")


def check_variable_name(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("is no name of an environment variable")
    return text


def one_of(*names: str, **other: str) -> BeforeValidator:
    """Spellings that differ only in case or in ``_`` and ``-``, and other words for the same."""
    known = {name.casefold(): name for name in names} | other

    def choose(value: Any) -> Any:
        return known.get(str(value).casefold().replace("_", "-"), value)

    return BeforeValidator(choose)


def up_to(most: timedelta) -> AfterValidator:
    """A duration above zero and not above `most`."""

    def check(value: timedelta) -> timedelta:
        if not timedelta(0) < value <= most:
            raise ValueError(f"must be more than 0 and at most {format_duration(most)}")
        return value

    return AfterValidator(check)


Name = Annotated[str, Field(min_length=1), Says("text")]
Port = Annotated[int, Field(ge=1, le=65535)]
Percent = Annotated[float, Field(ge=0, le=100)]
Growth = Annotated[float, Field(ge=0, le=1_000_000)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Days = Annotated[int, Field(ge=1, le=365)]
Year = Annotated[int, Field(ge=1900, le=2200)]
Id = Annotated[int, Field(ge=1, le=10**9)]
Requests = Annotated[int, Field(ge=0, le=10_000_000)]
Folder = Annotated[Path, Says("a path")]
File = Annotated[Path, Says("a path")]
Secret = Annotated[SecretStr, Field(min_length=1), Says("a secret")]
UpToTenMinutes = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(minutes=10)),
    Says("a duration up to 10m"),
]
UpToAnHour = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(hours=1)),
    Says("a duration up to 1h"),
]
UpToAWeek = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(days=7)),
    Says("a duration up to 7d"),
]
Age = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(days=3650)),
    Says("a duration up to 3650d"),
]
Moment = Annotated[AwareDatetime, Says("a time with its zone")]
HttpUrl = Annotated[str, AfterValidator(check_http_url), Says("an http or https address")]
ApiUrl = Annotated[
    str, AfterValidator(check_api_url), Says("an https address, or http on this machine")
]
Tiles = Annotated[str, AfterValidator(check_tiles), Says("an address with {z}, {x} and {y} in it")]
Host = Annotated[str, AfterValidator(check_host), Says("a host name or address")]
Zone = Annotated[str, AfterValidator(check_zone), Says("an IANA time zone")]
Cron = Annotated[str, AfterValidator(check_cron), Says("a cron expression")]
MountPath = Annotated[str, AfterValidator(check_mount_path), Says("a URL path")]
VariableName = Annotated[str, AfterValidator(check_variable_name), Says("a variable's name")]
DatabaseUrl = Annotated[
    SecretStr,
    BeforeValidator(database_url),
    Says("a postgresql:// URL, or a libpq or ADO.NET connection string"),
]
SecretUrl = Annotated[
    SecretStr, AfterValidator(check_secret_url), Says("an http or https address, kept secret")
]
Network = Annotated[str, AfterValidator(check_network), Says("a network such as 10.0.0.0/8")]
NatsName = Annotated[str, AfterValidator(check_nats_name), Says("letters, digits, _ and -")]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", warn="WARNING", information="INFO"),
]
EventName = Literal[
    "SyncCompleted",
    "SyncFailed",
    "SyncPartial",
    "RemovalGuardTriggered",
    "MvRefreshFailed",
    "HealthStatusChanged",
    "DatasetChanged",
]
Event = Annotated[EventName, one_of(*get_args(EventName))]


class Section(BaseModel):
    """A branch of the tree."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        str_strip_whitespace=True,
        # A value may be a secret in the wrong place: no message repeats it.
        hide_input_in_errors=True,
    )
