"""Time as the product sees it: aware instants, named zones, and a clock that tests can turn.

What *decides* (is a job due, which quota day is it) asks the database for the time, so that any
number of machines agree. This clock is for what merely measures and labels.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hasat.errors import SettingsError, UsageError
from hasat.messages import msg

ISTANBUL = ZoneInfo("Europe/Istanbul")

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the machine's time in UTC."""
    return datetime.now(UTC)


def zone(name: str) -> ZoneInfo:
    """Return the named time zone; raise UsageError if it does not exist."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, IsADirectoryError) as error:
        raise SettingsError(
            msg("There is no time zone named {name!r}.", name=name),
            remedy=msg("Use an IANA name such as Europe/Istanbul or UTC."),
        ) from error


@lru_cache(maxsize=128)
def local_time(moment: datetime) -> str:
    """Return a time as the original .NET service writes it: Turkish local time without a zone."""
    return moment.astimezone(ISTANBUL).replace(tzinfo=None).isoformat(timespec="microseconds")


def parse_local_time(text: str) -> datetime:
    """Parse a time in the usual forms; without a zone it is Turkish time."""
    # In an address, the plus sign of a zone arrives as a space unless it was escaped.
    tidy = re.sub(r"(\d\d:\d\d(?::\d\d(?:\.\d+)?)?) (\d\d:?\d\d)$", r"\1+\2", text.strip())
    try:
        moment = datetime.fromisoformat(tidy)
        return moment.astimezone(ISTANBUL) if moment.tzinfo else moment.replace(tzinfo=ISTANBUL)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            msg("{text!r} is not a time.", text=text),
            remedy=msg("Write it as 2026-02-19T10:00:00 or 2026-02-19 10:00:00."),
        ) from error
