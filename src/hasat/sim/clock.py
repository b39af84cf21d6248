"""The clock of the simulators, which tests and HTTP requests can set."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hasat.errors import UsageError
from hasat.messages import msg


class SettableClock:
    """A `hasat.clock.Clock` that runs at `speed` times the pace of the machine."""

    def __init__(
        self,
        start: datetime | None = None,
        *,
        speed: float = 1.0,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ticks = ticks
        self._set(start or datetime.now(UTC), speed)

    def __call__(self) -> datetime:
        return self._base + timedelta(seconds=(self._ticks() - self._since) * self._speed)

    @property
    def speed(self) -> float:
        return self._speed

    def set_time(self, moment: datetime) -> None:
        """Jump to a moment, forward or back."""
        self._set(moment, self._speed)

    def advance(self, seconds: float) -> None:
        self._set(self() + timedelta(seconds=seconds), self._speed)

    def set_speed(self, speed: float) -> None:
        """Let `speed` seconds pass here in each second of the machine; 0 stops the clock."""
        self._set(self(), speed)

    def _set(self, base: datetime, speed: float) -> None:
        if base.tzinfo is None:
            raise UsageError(
                msg("{base} has no time zone.", base=base.isoformat()),
                remedy=msg("Add one, e.g. +03:00."),
            )
        if speed < 0:
            raise UsageError(
                msg("A clock cannot run backwards."), remedy=msg("Use a speed of 0 or more.")
            )
        self._base, self._speed, self._since = base.astimezone(UTC), speed, self._ticks()
