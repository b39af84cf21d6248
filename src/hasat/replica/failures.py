"""Errors of a replica, and the pauses before it retries."""

import random
from dataclasses import dataclass

from hasat.errors import GoneError, HasatError, UnavailableError
from hasat.messages import msg


class TroubleError(UnavailableError):
    """The server is unavailable; it may have named a time for the next attempt."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(
            message, remedy=msg("Check the address and the server, then start the replica again.")
        )
        self.retry_after = retry_after


class StartOverError(GoneError):
    """The replica cannot continue from its cursor."""


class DifferentError(HasatError):
    """The replica's rows differ from the server's at the same cursor."""

    code = "replica-differs"


@dataclass(frozen=True)
class Backoff:
    """Pauses that double from `first` to `longest` seconds, with jitter.

    Jitter keeps many replicas from returning in the same second after an outage.
    """

    first: float = 1.0
    longest: float = 60.0

    def pause(self, failures: int) -> float:
        """Return the pause after a number of failures in a row."""
        longest = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


@dataclass
class FailureStreak:
    """Failures in a row, and the time waited since the first."""

    count: int = 0
    waited: float = 0.0

    def next_pause(
        self, pace: Backoff, *, at_least: float = 0.0, first_is_free: bool = False
    ) -> float:
        """Count one more failure and return the pause."""
        self.count += 1
        pause = 0.0 if first_is_free and self.count == 1 else pace.pause(self.count)
        pause = max(pause, at_least)
        self.waited += pause
        return pause
