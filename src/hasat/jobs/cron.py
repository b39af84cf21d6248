"""Cron expressions and their due times.

A job at a fixed time of day runs exactly once a day, also when daylight saving time changes: a time
that is skipped in spring counts as the first minute after the gap, a time that occurs twice in
autumn counts the first time. A job whose minute or hour field starts with ``*`` follows elapsed
minutes instead: ``*/10 * * * *`` is due every ten minutes through both changes.
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
"""How late a job with ``missed="skip"`` may still be run."""

_SEARCH_SPANS = (timedelta(hours=2), timedelta(days=2), timedelta(days=62))


@dataclass(frozen=True)
class Cron:
    """A five-field expression in a zone."""

    expression: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, expression: str, zone: str) -> "Cron":
        """Parse an expression; raise SettingsError if it is invalid or never due."""
        cron = cls(expression, zone_named(zone))
        if len(expression.split()) != 5:
            raise SettingsError(
                msg("{expression!r} is not a cron expression.", expression=expression),
                remedy=msg("Use five fields: minute, hour, day, month, weekday."),
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
                msg("The cron expression {expression!r} is never due.", expression=expression)
            ) from error
        return cron

    def after(self, moment: datetime) -> datetime:
        """Return the first due time later than `moment`."""
        return next(self._dues(moment))

    def newest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last due time in (after, until], without iterating over a long past."""
        for back in (*_SEARCH_SPANS, until - after):
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
            # Inside the hour that occurs twice, cronsim starts from its first occurrence.
            if instant > moment:
                yield instant


@dataclass(frozen=True)
class Due:
    """A due time, and whether to run the job or to skip it because it is too late."""

    at: datetime
    fire: bool


def due_now(
    cron: Cron, missed: Literal["once", "skip"], fired_until: datetime, now: datetime
) -> Due | None:
    """Return the due time to handle now; of several missed times only the newest."""
    newest = cron.newest(fired_until, now)
    if newest is None:
        return None
    return Due(newest, fire=missed == "once" or now - newest <= GRACE)
