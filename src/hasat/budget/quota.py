"""The state of a budget: its windows, lanes and jobs, and a forecast for the quota day."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import class_row
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from hasat.clock import zone
from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.store import Store
from hasat.store.audit import record_action
from hasat.store.queries import load_query

_CAMEL_CASE = ConfigDict(alias_generator=to_camel)
"""The API publishes these values as JSON with names in camel case."""


@dataclass(frozen=True)
class Spending:
    """The input of a forecast."""

    now: datetime
    starts_at: datetime
    ends_at: datetime
    zone: str
    usable: int
    """The requests that the highest lane may still send today."""
    target: float
    """The share of the daily limit that paced lanes use by the end of the day."""
    to_target: int
    """The requests left up to the target."""
    others_last_hour: int
    paced_last_hour: int
    has_paced: bool


@dataclass(frozen=True)
class Forecast:
    """The expected end of the day: `spent`, `runs_out` at a time, `unused` or `on_target`.

    With paced lanes `unused` is the rest of the `target`; without them it is the unused rest
    of the quota, and there is no target.
    """

    __pydantic_config__ = _CAMEL_CASE

    kind: Literal["spent", "runs_out", "unused", "on_target"]
    sentence: str
    at: datetime | None = None
    unused: int = 0
    target: float | None = None


def forecast(s: Spending) -> Forecast:
    """Forecast the day: lanes continue as in the last hour, paced ones within what is left."""
    left = (s.ends_at - s.now).total_seconds()
    # Early in the day there is less than an hour of data.
    seen = max(60.0, min(3600.0, (s.now - s.starts_at).total_seconds()))
    if s.usable <= 0:
        return Forecast("spent", msg("spent until {time}", time=_clock(s.ends_at, s)), at=s.ends_at)
    others = s.others_last_hour / seen * left
    if others > s.usable:
        at = s.now + timedelta(seconds=left * s.usable / others)
        return Forecast("runs_out", msg("runs out {time}", time=_clock(at, s)), at=at)
    goal = s.to_target if s.has_paced else s.usable
    for_paced = max(0.0, goal - others)
    paced = min(for_paced, s.paced_last_hour / seen * left)
    unused = round(for_paced - paced)
    # Half a percent is on target.
    if unused * 200 <= goal:
        sentence = msg("reaches its target by {time}", time=_clock(s.ends_at, s))
        return Forecast("on_target", sentence)
    end = _clock(s.ends_at, s)
    if s.has_paced:
        sentence = msg(
            "{unused:,} of the target of {target:.0%} unused at {time}",
            unused=unused,
            target=s.target,
            time=end,
        )
        return Forecast("unused", sentence, unused=unused, target=s.target)
    sentence = msg("{unused:,} unused at {time}", unused=unused, time=end)
    return Forecast("unused", sentence, unused=unused)


def _clock(moment: datetime, s: Spending) -> str:
    there = moment.astimezone(zone(s.zone))
    midnight = "24:00" if moment == s.ends_at else f"{there:%H:%M}"
    return f"{midnight} {there.tzname()}"


T = TypeVar("T")


@dataclass(frozen=True)
class Windows:
    """The windows that all requests to an upstream share; None where there is no limit."""

    __pydantic_config__ = _CAMEL_CASE

    upstream: str
    zone: str
    now: datetime
    shadow: Annotated[bool, Field(description="Whether requests are only counted, never refused.")]
    opening_seconds: Annotated[SkipJsonSchema[int], Field(exclude=True)]
    day: date
    starts_at: datetime
    ends_at: datetime
    day_limit: Annotated[int | None, Field(description="null without a day window.")]
    plan: Annotated[
        int | None, Field(description="The smallest day limit that the upstream stated today.")
    ]
    target: float
    spent: int
    written_off: Annotated[
        int, Field(description="Part of spent: charged after crashes of the database.")
    ]
    foreign_use: Annotated[
        int,
        Field(description="Requests of other programs with the same key."),
    ]
    remaining: int | None
    exhausted_at: Annotated[
        datetime | None, Field(description="When the upstream reported that the day is used up.")
    ]
    recheck_at: Annotated[
        datetime | None,
        Field(
            description="When the day is checked again; null if it is open or closed to its end."
        ),
    ]
    minute_limit: int | None
    minute_hard: int | None
    minute_plan: int | None
    minute_rate: Annotated[
        float | None, Field(description="Requests a minute that are granted now.")
    ]
    last_minute: int
    paused_until: datetime | None

    @property
    def effective_limit(self) -> int | None:
        """The smaller of the configured limit of a day and the one that the upstream stated."""
        return self.day_limit and min(self.day_limit, self.plan or self.day_limit)


@dataclass(frozen=True)
class LaneUse:
    """The use of a lane today; `may_spend` is what it could send at once, before pacing."""

    __pydantic_config__ = _CAMEL_CASE

    name: str
    paced: bool
    keep: Annotated[int, Field(description="Must remain of the day after a grant.")]
    spent: int
    grants: int
    waits: int
    waited_seconds: float
    refusals: int
    last_hour: int
    kept_for_others: int
    may_spend: int | None


@dataclass(frozen=True)
class Spender:
    """The use of a job today."""

    __pydantic_config__ = _CAMEL_CASE

    job: str
    lane: str
    spent: int
    grants: int
    refusals: int


@dataclass(frozen=True)
class OutcomeUse:
    """Today's requests with one outcome; None means no response."""

    __pydantic_config__ = _CAMEL_CASE

    outcome: Annotated[str | None, Field(description="null without a response.")]
    requests: int
    spent: int
    median_ms: float | None
    p95_ms: float | None


@dataclass(frozen=True)
class EndpointUse:
    """The use of an endpoint with its own window today."""

    __pydantic_config__ = _CAMEL_CASE

    name: str
    day_limit: int | None
    spent: int
    exhausted_at: datetime | None
    rest_until: datetime | None


@dataclass(frozen=True)
class Quota:
    """The complete state of one upstream's budget."""

    windows: Windows
    lanes: tuple[LaneUse, ...]
    spenders: tuple[Spender, ...]
    outcomes: tuple[OutcomeUse, ...]
    endpoints: tuple[EndpointUse, ...]

    @property
    def forecast(self) -> Forecast | None:
        """The forecast for the day; None without a daily limit."""
        w = self.windows
        limit = w.effective_limit
        if w.remaining is None or limit is None:
            return None
        beyond_target = limit - int(limit * w.target + 1e-6)
        return forecast(
            Spending(
                now=w.now,
                starts_at=w.starts_at,
                ends_at=w.ends_at,
                zone=w.zone,
                usable=max(0, w.remaining - min(lane.keep for lane in self.lanes)),
                target=w.target,
                to_target=max(0, w.remaining - beyond_target),
                others_last_hour=sum(lane.last_hour for lane in self.lanes if not lane.paced),
                paced_last_hour=sum(lane.last_hour for lane in self.lanes if lane.paced),
                has_paced=any(lane.paced for lane in self.lanes),
            )
        )


async def read_quota(store: Store, upstream: str) -> Quota:
    """Return the state of one upstream's budget."""
    found = await read_quotas(store, upstream)
    if not found:
        raise NotFoundError(
            msg("There is no budget for {upstream!r}.", upstream=upstream),
            remedy=msg("`hasat quota` lists all budgets."),
        )
    return found[0]


async def read_quotas(
    store: Store, upstream: str | None = None, *, outcomes: bool = True
) -> list[Quota]:
    """Return the state of all declared budgets, or of one.

    Without `outcomes`, the requests of the day are not counted by outcome, which is faster.
    """
    async with store.snapshot() as conn:
        windows = await _rows(conn, Windows, "windows", {"upstream": upstream})
        return [await _quota(conn, each, outcomes=outcomes) for each in windows]


async def reopen(store: Store, upstream: str) -> bool:
    """Reopen an exhausted day; return False if it is open.

    The limits that the upstream stated today are ignored until it states them again.
    """
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT budget.reopen(%s)", [upstream])
        reopened = await cursor.fetchone() == (True,)
        await record_action(conn, upstream, reopened=reopened)
        return reopened


async def _quota(conn: AsyncConnection[Any], windows: Windows, *, outcomes: bool) -> Quota:
    values = {
        "upstream": windows.upstream,
        "day": windows.day,
        "now": windows.now,
        "starts_at": windows.starts_at,
    }
    return Quota(
        windows,
        tuple(await _rows(conn, LaneUse, "lanes", values)),
        tuple(await _rows(conn, Spender, "spenders", values)),
        tuple(await _rows(conn, OutcomeUse, "outcomes", values) if outcomes else ()),
        tuple(await _rows(conn, EndpointUse, "endpoints", values)),
    )


async def _rows(
    conn: AsyncConnection[Any], kind: type[T], name: str, values: dict[str, Any]
) -> list[T]:
    async with conn.cursor(row_factory=class_row(kind)) as cursor:
        await cursor.execute(load_query("hasat.budget", name), values)
        return await cursor.fetchall()
