"""Time as the product sees it: aware instants, named zones, and a clock that tests can turn.

What *decides* (is a job due, which quota day is it) asks the database for the time, so that any
number of machines agree. This clock is for what merely measures and labels.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hasat.errors import SettingsError

ISTANBUL = ZoneInfo("Europe/Istanbul")

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)


def zone(name: str) -> ZoneInfo:
    """The named time zone, or a sentence that says it does not exist."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, IsADirectoryError) as error:
        raise SettingsError(
            f"There is no time zone named {name!r}.",
            remedy="Use an IANA name such as Europe/Istanbul or UTC.",
        ) from error
