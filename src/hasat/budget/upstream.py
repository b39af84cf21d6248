"""What an upstream allows and how its quota is shared out, and how the database is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from hasat.clock import zone as zone_named
from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.store.queries import load_query


@dataclass(frozen=True)
class Lane:
    """A kind of work. Lanes are listed by worth: an earlier one goes first and is never starved."""

    name: str
    keep: int = 0
    """What must remain of the day after a grant: an emergency reserve, a `min_daily_quota`."""
    keep_share: float = 1.0
    """It is never more than this share of the plan that the upstream states."""
    needs: int = 0
    """What it takes a day, until the ledger knows better; lower lanes leave that much alone."""
    paced: bool = False
    """Takes what nobody else needs, evenly until the day's end, up to the upstream's target."""
    early: bool = False
    """May ask in the first minutes of a quota day, before the upstream's own count has settled."""
    share: float = 0.0
    """Of what paced lanes spend: this much it gets even while a higher paced lane waits."""


LANES = (
    Lane("finalise", early=True),
    Lane("daily", early=True),
    Lane("details"),
    Lane("backfill", paced=True),
    Lane("verify", paced=True, share=0.05),
)


@dataclass(frozen=True)
class EndpointLimit:
    """What one endpoint allows, where each has a limit of its own."""

    day: int | None = None
    seconds: float = 0.0
    """The least time between two requests."""


@dataclass(frozen=True)
class Upstream:
    """The windows of one upstream, as configured. None means that there is no such window."""

    name: str
    zone: str = "UTC"
    """Where the upstream's day begins and ends."""
    day_limit: int | None = None
    target: float = 0.9
    """The share of the day that paced lanes spend up to."""
    minute_limit: int | None = None
    """Requests in a minute to work at; never more in any sixty seconds."""
    minute_hard: int | None = None
    """Requests in a minute that the upstream allows; by default what we work at."""
    lanes: tuple[Lane, ...] = LANES
    opening_seconds: int = 600
    """So long after the day began only early lanes ask, and before its end paced ones are done."""
    each_endpoint: EndpointLimit | None = None
    """For endpoints that are not named in `endpoints`."""
    endpoints: Mapping[str, EndpointLimit] = field(default_factory=dict, hash=False)
    shadow: bool = False
    """Count and note what would have been refused, but grant everything."""

    def __post_init__(self) -> None:
        zone_named(self.zone)
        names = [lane.name for lane in self.lanes]
        if not names or len(set(names)) < len(names):
            raise SettingsError(
                msg(
                    "The lanes of {name} need names that differ: {names}.",
                    name=self.name,
                    names=names,
                )
            )
        hard = self.minute_hard
        if hard is not None and (self.minute_limit is None or hard < self.minute_limit):
            raise SettingsError(
                msg(
                    "{name} would work at {minute_limit} requests a minute, of {hard}.",
                    name=self.name,
                    minute_limit=self.minute_limit,
                    hard=hard,
                ),
                remedy=msg("Lower the minute's soft limit to at most the hard one."),
            )

    @property
    def has_endpoints(self) -> bool:
        return self.each_endpoint is not None or bool(self.endpoints)


async def declare(
    conn: AsyncConnection[Any], upstream: Upstream, *, if_missing: bool = False
) -> None:
    """Tell the database the rules. Who declares last is right; counts and pauses stay."""
    each = upstream.each_endpoint or EndpointLimit()
    values = {
        "name": upstream.name,
        "zone": upstream.zone,
        "day_limit": upstream.day_limit,
        "target": upstream.target,
        "minute_limit": upstream.minute_limit,
        "minute_hard": upstream.minute_hard or upstream.minute_limit,
        "opening_seconds": upstream.opening_seconds,
        "endpoint_limit": each.day,
        "endpoint_seconds": each.seconds,
        "has_endpoints": upstream.has_endpoints,
        "shadow": upstream.shadow,
        "lanes": [lane.name for lane in upstream.lanes],
        "keeps": [lane.keep for lane in upstream.lanes],
        "keep_shares": [lane.keep_share for lane in upstream.lanes],
        "needs": [lane.needs for lane in upstream.lanes],
        "paced": [lane.paced for lane in upstream.lanes],
        "early": [lane.early for lane in upstream.lanes],
        "shares": [lane.share for lane in upstream.lanes],
        "if_missing": if_missing,
        "endpoints": list(upstream.endpoints),
        "endpoint_days": [limit.day for limit in upstream.endpoints.values()],
        "endpoint_spacings": [limit.seconds for limit in upstream.endpoints.values()],
    }
    await conn.execute(load_query("hasat.budget", "declare"), values)
    await conn.execute(load_query("hasat.budget", "learn"), values)
