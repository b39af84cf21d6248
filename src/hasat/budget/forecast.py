"""What the quota day will come to if the last hour goes on."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from hasat.clock import zone


@dataclass(frozen=True)
class Spending:
    """What a forecast is made from."""

    now: datetime
    starts_at: datetime
    ends_at: datetime
    zone: str
    usable: int
    """What the most privileged lane may still spend today."""
    target: float
    """The share of the day's limit that paced lanes spend by its end."""
    to_target: int
    """What is left up to that."""
    others_last_hour: int
    paced_last_hour: int
    has_paced: bool


@dataclass(frozen=True)
class Forecast:
    """`spent`, `runs_out` at a time, `unused` so many at the end, or `on_target`.

    With paced lanes `unused` is what stays short of the `target`, which is less than all that is
    left; without them it is what stays of all that may be spent, and there is no target.
    """

    kind: Literal["spent", "runs_out", "unused", "on_target"]
    sentence: str
    at: datetime | None = None
    unused: int = 0
    target: float | None = None


def forecast(s: Spending) -> Forecast:
    """Lanes that are not paced go on as in the last hour; paced ones take no more than is left."""
    left = (s.ends_at - s.now).total_seconds()
    # Early in the day there is less than an hour to go by.
    seen = max(60.0, min(3600.0, (s.now - s.starts_at).total_seconds()))
    if s.usable <= 0:
        return Forecast("spent", f"spent until {_clock(s.ends_at, s)}", at=s.ends_at)
    others = s.others_last_hour / seen * left
    if others > s.usable:
        at = s.now + timedelta(seconds=left * s.usable / others)
        return Forecast("runs_out", f"runs out {_clock(at, s)}", at=at)
    goal = s.to_target if s.has_paced else s.usable
    for_paced = max(0.0, goal - others)
    paced = min(for_paced, s.paced_last_hour / seen * left)
    unused = round(for_paced - paced)
    # Within half a percent nothing need be said.
    if unused * 200 <= goal:
        return Forecast("on_target", f"reaches its target by {_clock(s.ends_at, s)}")
    end = _clock(s.ends_at, s)
    if s.has_paced:
        sentence = f"{unused:,} short of the target of {s.target:.0%} at {end}"
        return Forecast("unused", sentence, unused=unused, target=s.target)
    return Forecast("unused", f"{unused:,} unused at {end}", unused=unused)


def _clock(moment: datetime, s: Spending) -> str:
    there = moment.astimezone(zone(s.zone))
    midnight = "24:00" if moment == s.ends_at else f"{there:%H:%M}"
    return f"{midnight} {there.tzname()}"
