"""What a process knows of its endpoints at the moment, and which of them it would ask."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from hasat.clock import system_clock, zone
from hasat.errors import HasatError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch.endpoint_store import Seen
from hasat.fetch.health import DAY_OVER, Effect, LatencySketch, Pace, Worth
from hasat.fetch.outcomes import Request
from hasat.fetch.workers_file import Endpoint
from hasat.messages import msg

_UNKNOWN_SECONDS = 0.5
_ALIKE, _ALIKE_SECONDS = 1.25, 0.02
_SOON_SECONDS = 0.005
_SCARCE = 0.05
_LEARNED_SLACK = 20


@dataclass
class Known:
    """How long an endpoint takes for one kind of question."""

    worth: Worth = field(default_factory=Worth)
    at: float = 0.0
    sketch: LatencySketch = field(default_factory=LatencySketch)
    pace: Pace = field(default_factory=Pace)


@dataclass
class Standing:
    """One endpoint; moments are on this process's monotonic clock."""

    endpoint: Endpoint
    ours: bool = False
    """We have a request there."""
    theirs: bool = False
    """Another process has, as far as we know."""
    since: float = 0.0
    """When that request went out, or was first seen."""
    free_at: float = 0.0
    rest_until: float = 0.0
    rest_cause: str | None = None
    points: int = 0
    learned: int | None = None
    used: int = 0
    known: defaultdict[str, Known] = field(default_factory=lambda: defaultdict(Known))

    @property
    def left(self) -> int:
        """Points that may still be spent today."""
        most = self.endpoint.daily
        if self.learned is not None:
            most = min(most, self.learned + max(self.learned // 10, _LEARNED_SLACK))
        return max(most - self.points, 0)

    @property
    def scarce(self) -> bool:
        return self.left <= self.endpoint.daily * _SCARCE

    def apart(self, kind: str) -> float:
        """The least time between two requests, longer while answers take unusually long."""
        return self.endpoint.min_interval * self.known[kind].pace.factor

    def day_is_over(self, points: int, now: float) -> bool:
        return self.left < points or (self.rest_until > now and self.rest_cause == DAY_OVER)

    def see(self, seen: Seen, kind: str, now: float) -> None:
        """Take over what the database says."""
        if seen.held and not self.theirs:
            self.since = now
        self.theirs = seen.held
        self.free_at = now + seen.next_in
        self.rest_until = now + seen.rest_in
        self.rest_cause = seen.rest_cause
        self.points, self.learned = seen.points, seen.learned
        known = self.known[kind]
        known.worth, known.at = Worth(seen.mean, seen.weight), now - seen.measured_ago
        known.sketch = LatencySketch.from_bytes(seen.sketch)

    def feel(self, effect: Effect, day_ends_at: float, now: float) -> None:
        """Take over what the last answer means, before the database says it."""
        self.learned = effect.learned
        self.rest_cause = effect.cause
        self.rest_until = day_ends_at if effect.until_day_ends else now + (effect.rest or 0.0)

    def wait(self, now: float, expected: float) -> float:
        """How long until it may be asked; for one that is busy it is a guess.

        What has taken longer than expected will probably take about as long again.
        """
        wait = max(self.free_at, self.rest_until) - now
        if self.ours or self.theirs:
            wait = max(wait, abs(expected - (now - self.since)), _SOON_SECONDS)
        return max(wait, 0.0)


def usual_seconds(standings: Iterable[Standing], kind: str) -> float:
    """What an answer usually takes, by the endpoint in the middle."""
    return _middle(standings, kind, 0.5) or _UNKNOWN_SECONDS


def hedge_delay(
    standing: Standing, standings: Iterable[Standing], kind: str, quantile: float
) -> float | None:
    """When a second try is worth it: after the endpoint's own quantile.

    One bad endpoint's is capped near that of the one in the middle. None if nothing is known.
    """
    typical = _middle(standings, kind, quantile)
    if typical is None:
        return None
    own = standing.known[kind].sketch.quantile(quantile)
    return min(own or typical, _ALIKE * typical)


def _middle(standings: Iterable[Standing], kind: str, quantile: float) -> float | None:
    values = [standing.known[kind].sketch.quantile(quantile) for standing in standings]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def choose(
    standings: Collection[Standing],
    question: Request,
    *,
    excluded: Collection[str],
    now: float,
) -> tuple[Standing, float] | None:
    """The endpoint from which the answer is expected first, and how long until it may be asked.

    The wait counts, so that a good endpoint that is busy is preferred to a bad one that is free.
    Among those that are about equal it is the one whose turn is longest ago.
    """
    usual = usual_seconds(standings, question.kind)
    costs: list[tuple[float, float, Standing]] = []
    for standing in standings:
        endpoint = standing.endpoint
        if endpoint.url in excluded or endpoint.path_for(question) is None:
            continue
        if standing.day_is_over(question.points, now):
            continue
        known = standing.known[question.kind]
        expected = known.worth.after(now - known.at).expected(usual)
        wait = standing.wait(now, expected)
        costs.append((wait + expected, wait, standing))
    if not costs:
        return None
    alike = min(cost for cost, _, _ in costs) * _ALIKE + _ALIKE_SECONDS
    equals = [(standing, wait) for cost, wait, standing in costs if cost <= alike]
    return min(equals, key=lambda pair: (pair[1] > 0.0, pair[0].used))


def refused(upstream: str, reason: str) -> SettingsError:
    """Everything stopped, because the key is not taken."""
    return SettingsError(
        msg(
            "{upstream} refuses the key: {reason}. Nothing more is asked with this key.",
            upstream=upstream,
            reason=reason or "it says no more than that",
        ),
        remedy=msg(
            "Correct the key; it is tried again at once. The old one is tried once in a while."
        ),
    )


def all_alike(upstream: str, cause: str, seconds: float, zone_name: str) -> UnavailableError:
    """The upstream as a whole rests."""
    return UnavailableError(
        msg(
            "Every endpoint of {upstream} fails alike ({cause}), so the fault is "
            "behind them; {upstream} rests until {seconds}.",
            upstream=upstream,
            cause=cause,
            seconds=_clock(seconds, zone_name),
        ),
        remedy=msg("It is tried again by itself."),
    )


def nobody(
    upstream: str,
    standings: Collection[Standing],
    question: Request,
    *,
    now: float,
    day_ends_in: float,
    zone_name: str,
) -> HasatError:
    """No endpoint can be asked: why, and when the first can be."""
    able = [s for s in standings if s.endpoint.path_for(question) is not None]
    if not able:
        return SettingsError(
            msg("No endpoint of {upstream} answers questions by number.", upstream=upstream),
            remedy=msg("Give one of them by_number in workers.json."),
        )
    in_service = [s for s in able if not s.day_is_over(question.points, now)]
    if not in_service:
        return OutOfQuotaError(
            msg("Every endpoint of {upstream} has spent its day.", upstream=upstream),
            remedy=msg(
                "They can be asked again from {day_ends_in}.",
                day_ends_in=_clock(day_ends_in, zone_name),
            ),
            until=system_clock() + timedelta(seconds=max(day_ends_in, 0.0)),
        )
    first = min(in_service, key=lambda s: s.rest_until)
    why = f" ({first.rest_cause})" if first.rest_cause else ""
    return UnavailableError(
        msg(
            "No endpoint of {upstream} can be asked now: all are busy, resting or "
            "have spent their day.{next}",
            upstream=upstream,
            next=(
                msg(" {url} is back first{why}.", url=first.endpoint.url, why=why) if why else ""
            ),
        ),
        remedy=msg("Try again from {clock}.", clock=_clock(first.rest_until - now, zone_name)),
    )


def _clock(seconds: float, zone_name: str) -> str:
    moment: datetime = system_clock() + timedelta(seconds=max(seconds, 0.0))
    there = moment.astimezone(zone(zone_name))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
