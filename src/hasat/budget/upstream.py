"""The limits and lanes of an upstream, and their declaration in the database."""

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
    """A priority class. Lanes are listed by priority: an earlier one goes first."""

    name: str
    keep: int = 0
    """The requests that must remain after a grant: an emergency reserve, a `min_daily_quota`."""
    keep_share: float = 1.0
    """The maximum of `keep` as a share of the limit that the upstream states."""
    needs: int = 0
    """The expected requests a day until the ledger has data; lower lanes leave that many."""
    paced: bool = False
    """Whether it uses the quota that other lanes leave, evenly over the day, up to the target."""
    early: bool = False
    """Whether it may send in the first minutes of a quota day, before the upstream has reset."""
    share: float = 0.0
    """The share of paced requests that it gets even while a higher paced lane waits."""


LANES = (
    Lane("finalise", early=True),
    Lane("daily", early=True),
    Lane("details"),
    Lane("backfill", paced=True),
    Lane("verify", paced=True, share=0.05),
)


@dataclass(frozen=True)
class EndpointLimit:
    """The limits of one endpoint."""

    day: int | None = None
    seconds: float = 0.0
    """The minimum time between two requests."""


@dataclass(frozen=True)
class Upstream:
    """The configured limits of one upstream; None means no limit."""

    name: str
    zone: str = "UTC"
    """The time zone of the upstream's quota day."""
    day_limit: int | None = None
    target: float = 0.9
    """The share of the day that paced lanes spend up to."""
    minute_limit: int | None = None
    """The requests to send in a minute; never more in any sixty seconds."""
    minute_hard: int | None = None
    """The requests in a minute that the upstream allows; `minute_limit` by default."""
    lanes: tuple[Lane, ...] = LANES
    opening_seconds: int = 600
    """How long after the day's start only early lanes send, and before its end paced lanes stop."""
    each_endpoint: EndpointLimit | None = None
    """For endpoints that are not named in `endpoints`."""
    endpoints: Mapping[str, EndpointLimit] = field(default_factory=dict, hash=False)
    shadow: bool = False
    """Whether to grant everything and only record what would have been refused."""

    def __post_init__(self) -> None:
        zone_named(self.zone)
        names = [lane.name for lane in self.lanes]
        if not names or len(set(names)) < len(names):
            raise SettingsError(
                msg(
                    "The lanes of {name} need distinct names: {names}.",
                    name=self.name,
                    names=names,
                )
            )
        hard = self.minute_hard
        if hard is not None and (self.minute_limit is None or hard < self.minute_limit):
            raise SettingsError(
                msg(
                    "The minute limit of {name} ({minute_limit}) exceeds its hard limit ({hard}).",
                    name=self.name,
                    minute_limit=self.minute_limit,
                    hard=hard,
                ),
                remedy=msg("Lower the minute limit to at most the hard limit."),
            )

    @property
    def has_endpoints(self) -> bool:
        return self.each_endpoint is not None or bool(self.endpoints)


async def declare(
    conn: AsyncConnection[Any], upstream: Upstream, *, if_missing: bool = False
) -> None:
    """Write the limits to the database; the last declaration applies, counts and pauses stay."""
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
    await conn.execute(load_query("hasat.budget", "learn_needs"), values)
