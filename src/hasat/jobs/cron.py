"""When a cron expression is due: pure functions of a moment, a zone and nothing else.

A job at a fixed time of day runs exactly once a day, also where clocks are changed: a time that is
skipped in spring counts as the first minute after the gap, a time that comes twice in autumn counts
the first time. A job whose minute or hour field starts with ``*`` follows real minutes instead:
``*/10 * * * *`` fires every ten minutes straight through both changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hasat.clock import zone as zone_named
from hasat.errors import SettingsError
from hasat.messages import msg

GRACE = timedelta(seconds=60)
"""How late a job with ``missed="skip"`` may still be fired."""

_LOOK_BACK = (timedelta(hours=2), timedelta(days=2), timedelta(days=62))


@dataclass(frozen=True)
class Cron:
    """A five-field expression in a zone."""

    expression: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, expression: str, zone: str) -> "Cron":
        """A checked expression; SettingsError if it cannot be read or never comes true."""
        cron = cls(expression, zone_named(zone))
        if len(expression.split()) != 5:
            raise SettingsError(
                msg("{expression!r} is not a cron expression.", expression=expression),
                remedy=msg("Write five fields: minute, hour, day, month, weekday."),
            )
        try:
            cron.after(datetime(2024, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise SettingsError(
                msg(
                    "{expression!r} is not a cron expression: {error}.",
                    expression=expression,
                    error=error,
                )
            ) from error
        except StopIteration as error:
            raise SettingsError(
                msg("The cron expression {expression!r} never comes true.", expression=expression)
            ) from error
        return cron

    def after(self, moment: datetime) -> datetime:
        """The first due time later than `moment`."""
        return next(self._dues(moment))

    def newest(self, after: datetime, until: datetime) -> datetime | None:
        """The last due time in (after, until], found without walking through a long past."""
        for back in (*_LOOK_BACK, until - after):
            start = max(after, until - back)
            found = None
            for due in self._dues(start):
                if due > until:
                    break
                found = due
            if found is not None or start == after:
                return found
        return None

    def _dues(self, moment: datetime) -> Iterator[datetime]:
        for due in CronSim(self.expression, moment.astimezone(self.zone)):
            instant = due.astimezone(UTC)
            # Inside the hour that comes twice, cronsim starts over from its first coming.
            if instant > moment:
                yield instant


@dataclass(frozen=True)
class Due:
    """A due time that is to be dealt with now: fired, or passed over because it is too old."""

    at: datetime
    fire: bool


def due_now(
    cron: Cron, missed: Literal["once", "skip"], fired_until: datetime, now: datetime
) -> Due | None:
    """What is due: of several missed times only the newest counts."""
    newest = cron.newest(fired_until, now)
    if newest is None:
        return None
    return Due(newest, fire=missed == "once" or now - newest <= GRACE)
