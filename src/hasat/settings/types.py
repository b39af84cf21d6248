"""Types of settings: how each is parsed from text, validated and shown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parseaddr
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
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
from hasat.settings.legacy import LegacyNames


@dataclass(frozen=True)
class Description:
    """A description of valid values for the reference."""

    text: str


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AMOUNTS = re.compile(rf"(?:{_AMOUNT.pattern})+")
_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,7})?))?")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.%]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_duration(value: Any) -> timedelta:
    """Parse seconds (600), amounts (10m, 1h30m) or the .NET form (00:10:00, 1.00:00:00)."""
    try:
        return _duration(value)
    except OverflowError:
        raise ValueError("is too long") from None


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
    """Return the shortest form that `parse_duration` accepts."""
    rest = round(value.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def check_http_url(text: str) -> str:
    """Check an absolute http or https address without credentials."""
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
    """Check an address of map tiles with its placeholders."""
    check_http_url(text)
    if missing := [place for place in ("{z}", "{x}", "{y}") if place not in text]:
        raise ValueError(f"has no {missing[0]}")
    if not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", urlsplit(text).netloc):
        raise ValueError("must name its host plainly")
    return text


def check_api_url(text: str) -> str:
    """Check an https address; http is allowed to this machine only, to protect the key."""
    parts = urlsplit(check_http_url(text))
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError("must be https; plain http is for addresses of this machine only")
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is always this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_secret_url(secret: SecretStr) -> SecretStr:
    """Check an address that is itself a secret, as Slack's are."""
    check_http_url(secret.get_secret_value())
    return secret


def check_smtp_url(secret: SecretStr) -> SecretStr:
    """Check the address of a mail server, which may have a user name and a password."""
    try:
        parts = urlsplit(secret.get_secret_value())
        more = parts.path.strip("/") or parts.query or parts.fragment
        usable = parts.scheme in ("smtp", "smtps") and parts.hostname and parts.port != 0
    except ValueError:
        usable, more = False, ""
    if more or not usable:
        raise ValueError("is no address such as smtp://user:password@mail.example.com:587")
    return secret


def check_mailbox(text: str) -> str:
    """Check an e-mail address, with or without a name."""
    _, address = parseaddr(text)
    if not text.isprintable() or not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", address):
        raise ValueError("is no e-mail address such as Hasat <hasat@example.com>")
    return text


def check_network(text: str) -> str:
    """Check a network or a single address."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError("is no network such as 10.0.0.0/8 or fd00::/8") from error


def check_nats_name(text: str) -> str:
    """Check one token of a NATS subject or stream name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise ValueError("may only have letters, digits, _ and -")
    return text


def check_zone(name: str) -> str:
    """Check that a time zone exists."""
    try:
        zone(name)
    except (SettingsError, OSError) as error:
        raise ValueError("is no time zone; use an IANA name such as Europe/Istanbul") from error
    return name


def check_cron(text: str) -> str:
    """Check a cron expression of five fields."""
    from cronsim import CronSim, CronSimError

    if len(text.split()) != 5:
        raise ValueError("is no cron expression of five fields: minute hour day month weekday")
    try:
        CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - only the expression is looked at
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {str(error).lower()}") from error
    return text


def check_host(text: str) -> str:
    """Check a host name or address without scheme and port."""
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
    """Accept names in any case, with ``_`` or ``-``, and their synonyms."""
    known = {name.casefold(): name for name in names} | other

    def choose(value: Any) -> Any:
        return known.get(str(value).casefold().replace("_", "-"), value)

    return BeforeValidator(choose)


def up_to(limit: timedelta) -> AfterValidator:
    """Require a duration above zero and at most `limit`."""

    def check(value: timedelta) -> timedelta:
        if not timedelta(0) < value <= limit:
            raise ValueError(f"must be more than 0 and at most {format_duration(limit)}")
        return value

    return AfterValidator(check)


Name = Annotated[str, Field(min_length=1), Description("text")]
Port = Annotated[int, Field(ge=1, le=65535)]
Percent = Annotated[float, Field(ge=0, le=100)]
Growth = Annotated[float, Field(ge=0, le=1_000_000)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Days = Annotated[int, Field(ge=1, le=365)]
Year = Annotated[int, Field(ge=1900, le=2200)]
Id = Annotated[int, Field(ge=1, le=10**9)]
Requests = Annotated[int, Field(ge=0, le=10_000_000)]
Folder = Annotated[Path, Description("a path")]
File = Annotated[Path, Description("a path")]
Secret = Annotated[SecretStr, Field(min_length=1), Description("a secret")]
UpToTenMinutes = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(minutes=10)),
    Description("a duration up to 10m"),
]
UpToAnHour = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(hours=1)),
    Description("a duration up to 1h"),
]
UpToAWeek = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(days=7)),
    Description("a duration up to 7d"),
]
Age = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(days=3650)),
    Description("a duration up to 3650d"),
]
Retention = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    up_to(timedelta(days=18262)),
    Description("a duration up to 18262d, 50 years"),
]
Moment = Annotated[AwareDatetime, Description("a time with its zone")]
HttpUrl = Annotated[str, AfterValidator(check_http_url), Description("an http or https address")]
ApiUrl = Annotated[
    str, AfterValidator(check_api_url), Description("an https address, or http on this machine")
]
Tiles = Annotated[
    str, AfterValidator(check_tiles), Description("an address with {z}, {x} and {y} in it")
]
Host = Annotated[str, AfterValidator(check_host), Description("a host name or address")]
Zone = Annotated[str, AfterValidator(check_zone), Description("an IANA time zone")]
Cron = Annotated[str, AfterValidator(check_cron), Description("a cron expression")]
MountPath = Annotated[str, AfterValidator(check_mount_path), Description("a URL path")]
VariableName = Annotated[str, AfterValidator(check_variable_name), Description("a variable's name")]
DatabaseUrl = Annotated[
    SecretStr,
    BeforeValidator(database_url),
    Description("a postgresql:// URL, or a libpq or ADO.NET connection string"),
]
SecretUrl = Annotated[
    SecretStr,
    AfterValidator(check_secret_url),
    Description("an http or https address, kept secret"),
]
SmtpUrl = Annotated[
    SecretStr, AfterValidator(check_smtp_url), Description("an smtp:// or smtps:// address")
]
Mailbox = Annotated[str, AfterValidator(check_mailbox), Description("an e-mail address")]
Network = Annotated[str, AfterValidator(check_network), Description("a network such as 10.0.0.0/8")]
NatsName = Annotated[str, AfterValidator(check_nats_name), Description("letters, digits, _ and -")]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", warn="WARNING", information="INFO"),
]


class Section(BaseModel):
    """A section of the settings."""

    legacy: ClassVar[LegacyNames] = LegacyNames()
    """Names of earlier systems; read from the top section of a source."""

    def without_effect(self) -> Sequence[str]:
        """Return what an operator may expect of settings that have no effect."""
        return ()

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        str_strip_whitespace=True,
        # No message repeats a value: it may be a secret in the wrong place.
        hide_input_in_errors=True,
    )
