"""Endpoints as this process sees them, the choice among them, and errors when none is left."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median_low

from hasat.clock import system_clock, zone
from hasat.errors import HasatError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch.endpoint_store import EndpointRow
from hasat.fetch.health import DAY_OVER, CostEstimate, Effect, LatencySketch, Throttle
from hasat.fetch.outcomes import Request
from hasat.fetch.workers_file import Endpoint
from hasat.messages import msg

_UNKNOWN_SECONDS = 0.5
_ABOUT_EQUAL, _ABOUT_EQUAL_SECONDS = 1.25, 0.02
_SOON_SECONDS = 0.005
_SCARCE = 0.05
_LEARNED_SLACK = 20


@dataclass
class LatencyStats:
    """Latency measurements of an endpoint for one kind of request."""

    cost: CostEstimate = field(default_factory=CostEstimate)
    at: float = 0.0
    sketch: LatencySketch = field(default_factory=LatencySketch)
    throttle: Throttle = field(default_factory=Throttle)


@dataclass
class EndpointState:
    """One endpoint; times are on this process's monotonic clock."""

    endpoint: Endpoint
    ours: bool = False
    """Whether this process has a request in flight there."""
    theirs: bool = False
    """Whether another process has one, as last seen in the database."""
    since: float = 0.0
    """When that request was sent or first seen."""
    free_at: float = 0.0
    rest_until: float = 0.0
    rest_cause: str | None = None
    points: int = 0
    learned: int | None = None
    used: int = 0
    stats: defaultdict[str, LatencyStats] = field(default_factory=lambda: defaultdict(LatencyStats))

    @property
    def left(self) -> int:
        """The points that remain today."""
        limit = self.endpoint.daily
        if self.learned is not None:
            limit = min(limit, self.learned + max(self.learned // 10, _LEARNED_SLACK))
        return max(limit - self.points, 0)

    @property
    def scarce(self) -> bool:
        return self.left <= self.endpoint.daily * _SCARCE

    def min_interval(self, kind: str) -> float:
        """Return the minimum time between two requests, longer while responses are slow."""
        return self.endpoint.min_interval * self.stats[kind].throttle.factor

    def day_is_over(self, points: int, now: float) -> bool:
        return self.left < points or (self.rest_until > now and self.rest_cause == DAY_OVER)

    def refresh(self, seen: EndpointRow, kind: str, now: float) -> None:
        """Update the state from the database."""
        if seen.held and not self.theirs:
            self.since = now
        self.theirs = seen.held
        self.free_at = now + seen.next_in
        self.rest_until = now + seen.rest_in
        self.rest_cause = seen.rest_cause
        self.points, self.learned = seen.points, seen.learned
        known = self.stats[kind]
        known.cost, known.at = CostEstimate(seen.mean, seen.weight), now - seen.measured_ago
        known.sketch = LatencySketch.from_bytes(seen.sketch)

    def apply(self, effect: Effect, day_ends_at: float, now: float) -> None:
        """Apply the effect of a response before the database has it."""
        self.learned = effect.learned
        self.rest_cause = effect.cause
        self.rest_until = day_ends_at if effect.until_day_ends else now + (effect.rest or 0.0)

    def wait(self, now: float, expected: float) -> float:
        """Return the seconds until the endpoint is free; an estimate while it is busy.

        A request that has taken longer than expected will probably take about as long again.
        """
        wait = max(self.free_at, self.rest_until) - now
        if self.ours or self.theirs:
            wait = max(wait, abs(expected - (now - self.since)), _SOON_SECONDS)
        return max(wait, 0.0)


def usual_seconds(states: Iterable[EndpointState], kind: str) -> float:
    """Return the median over the endpoints of their median latency."""
    return _median_quantile(states, kind, 0.5) or _UNKNOWN_SECONDS


def hedge_delay(
    state: EndpointState,
    states: Iterable[EndpointState],
    kind: str,
    quantile: float,
    late: float,
) -> float:
    """Return the seconds after which a response is late: the endpoint's own latency quantile.

    It is at least `late` times the median of all endpoints, so that jitter costs no hedge, and at
    most about their usual quantile, so that a slow endpoint does not hide behind its own.
    """
    earliest = late * usual_seconds(states, kind)
    typical = _median_quantile(states, kind, quantile)
    if typical is None:
        return earliest
    own = state.stats[kind].sketch.quantile(quantile)
    return max(earliest, min(own or typical, _ABOUT_EQUAL * typical))


def _median_quantile(states: Iterable[EndpointState], kind: str, quantile: float) -> float | None:
    values = [state.stats[kind].sketch.quantile(quantile) for state in states]
    known = [value for value in values if value is not None]
    # The lower one of two, so that one slow endpoint does not make unknown ones look slow.
    return median_low(known) if known else None


def choose(
    states: Collection[EndpointState],
    request: Request,
    *,
    excluded: Collection[str],
    now: float,
) -> tuple[EndpointState, float] | None:
    """Return the endpoint whose response is expected first, and the seconds until it is free.

    The wait counts, so that a fast endpoint that is busy is preferred to a slow one that is free.
    Among about equal endpoints the least recently used one is chosen.
    """
    usual = usual_seconds(states, request.kind)
    costs: list[tuple[float, float, EndpointState]] = []
    for state in states:
        endpoint = state.endpoint
        if endpoint.url in excluded or endpoint.path_for(request) is None:
            continue
        if state.day_is_over(request.points, now):
            continue
        known = state.stats[request.kind]
        expected = known.cost.after(now - known.at).expected(usual)
        wait = state.wait(now, expected)
        costs.append((wait + expected, wait, state))
    if not costs:
        return None
    limit = min(cost for cost, _, _ in costs) * _ABOUT_EQUAL + _ABOUT_EQUAL_SECONDS
    equals = [(state, wait) for cost, wait, state in costs if cost <= limit]
    return min(equals, key=lambda pair: (pair[1] > 0.0, pair[0].used))


def key_rejected(upstream: str, reason: str) -> SettingsError:
    """Return the error for a rejected API key."""
    return SettingsError(
        msg(
            "{upstream} rejects the API key: {reason}. Requests with this key have stopped.",
            upstream=upstream,
            reason=reason or msg("no reason given"),
        ),
        remedy=msg("Correct the key; a new key is used at once, the old one is retried rarely."),
    )


def all_failing(upstream: str, cause: str, seconds: float, zone_name: str) -> UnavailableError:
    """Return the error while the upstream as a whole has a cooldown."""
    return UnavailableError(
        msg(
            "Every endpoint of {upstream} fails in the same way ({cause}), so the upstream itself "
            "is at fault; requests are paused until {seconds}.",
            upstream=upstream,
            cause=cause,
            seconds=_clock(seconds, zone_name),
        ),
        remedy=msg("It is retried automatically."),
    )


def none_available(
    upstream: str,
    states: Collection[EndpointState],
    request: Request,
    *,
    now: float,
    day_ends_in: float,
    zone_name: str,
) -> HasatError:
    """Return the error when no endpoint is available, with the reason and the time of the next."""
    able = [s for s in states if s.endpoint.path_for(request) is not None]
    if not able:
        return SettingsError(
            msg("No endpoint of {upstream} supports requests by number.", upstream=upstream),
            remedy=msg("Set by_number for one of them in workers.json."),
        )
    in_service = [s for s in able if not s.day_is_over(request.points, now)]
    if not in_service:
        return OutOfQuotaError(
            msg("The daily quota of every endpoint of {upstream} is used up.", upstream=upstream),
            remedy=msg(
                "The quota resets at {day_ends_in}.",
                day_ends_in=_clock(day_ends_in, zone_name),
            ),
            until=system_clock() + timedelta(seconds=max(day_ends_in, 0.0)),
        )
    first = min(in_service, key=lambda s: s.rest_until)
    why = f" ({first.rest_cause})" if first.rest_cause else ""
    return UnavailableError(
        msg(
            "No endpoint of {upstream} is available: all are busy, in cooldown or out of "
            "quota.{next}",
            upstream=upstream,
            next=(
                msg(" {url} is available next{why}.", url=first.endpoint.url, why=why)
                if why
                else ""
            ),
        ),
        remedy=msg("Try again after {clock}.", clock=_clock(first.rest_until - now, zone_name)),
    )


def _clock(seconds: float, zone_name: str) -> str:
    moment: datetime = system_clock() + timedelta(seconds=max(seconds, 0.0))
    there = moment.astimezone(zone(zone_name))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
