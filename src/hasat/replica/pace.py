"""How long to wait before trying again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Pauses that double from `first` to `most` seconds, each shortened by chance.

    Chance keeps a thousand replicas from coming back in the same second after an outage.
    """

    first: float = 1.0
    most: float = 60.0

    def pause(self, failures: int) -> float:
        """The pause after so many failures in a row, the first being 1."""
        longest = min(self.most, self.first * 2.0 ** min(failures - 1, 60))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


@dataclass
class Troubles:
    """Troubles in a row, and how long they were waited out so far."""

    count: int = 0
    waited: float = 0.0

    def next_pause(
        self, pace: Pace, *, at_least: float = 0.0, first_is_free: bool = False
    ) -> float:
        """One more of them: how long to wait now."""
        self.count += 1
        pause = 0.0 if first_is_free and self.count == 1 else pace.pause(self.count)
        pause = max(pause, at_least)
        self.waited += pause
        return pause
