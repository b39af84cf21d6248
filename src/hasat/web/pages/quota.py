"""The quota: every window and lane of each upstream, the day's spending, and who spends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from hasat.budget import Quota, read_quota, reopen
from hasat.budget.quota import EndpointUse, LaneUse, OutcomeUse, Spender, Windows
from hasat.sources.upstreams import read_all_quotas
from hasat.store.queries import load_query
from hasat.web.charts import SpentDay
from hasat.web.page import Action, Asked, House, Page
from hasat.web.quotas import QuotaLine, quota_line

_MOST_ENDPOINTS = 100


@dataclass(frozen=True)
class SpenderLine:
    """A job that asked today, in a lane."""

    job: str
    lane: str
    by_hand: bool
    """Whether the lane is not the job's own: who runs it by hand does not wait for its pace."""
    spent: int
    refusals: int


@dataclass(frozen=True)
class UpstreamQuota:
    """One upstream's budget today."""

    line: QuotaLine
    windows: Windows
    day: SpentDay
    lanes: Sequence[LaneUse]
    spenders: Sequence[SpenderLine]
    outcomes: Sequence[OutcomeUse]
    endpoints: Sequence[EndpointUse]
    endpoints_in_all: int


@dataclass(frozen=True)
class Quotas:
    """All of the page."""

    upstreams: Sequence[UpstreamQuota]


async def quota(asked: Asked) -> Quotas:
    """Every budget there is."""
    found = await read_all_quotas(asked.store, asked.house.settings)
    return Quotas([await _upstream(asked.house, one) for one in found])


async def _upstream(house: House, quota: Quota) -> UpstreamQuota:
    w = quota.windows
    line = quota_line(quota)
    return UpstreamQuota(
        line=line,
        windows=w,
        day=SpentDay(
            now=w.now,
            starts_at=w.starts_at,
            ends_at=w.ends_at,
            limit=min(line.limit, w.plan or line.limit) if line.limit else None,
            target=w.target,
            by_hour=await _by_hour(house, w.upstream, w.day),
        ),
        lanes=quota.lanes,
        spenders=[_spender(house, one) for one in quota.spenders],
        outcomes=quota.outcomes,
        endpoints=sorted(quota.endpoints, key=lambda one: -one.spent)[:_MOST_ENDPOINTS],
        endpoints_in_all=len(quota.endpoints),
    )


def _spender(house: House, one: Spender) -> SpenderLine:
    job = house.catalogue.jobs.get(one.job)
    by_hand = job is not None and job.lane != one.lane
    return SpenderLine(one.job, one.lane, by_hand, one.spent, one.refusals)


async def _by_hour(house: House, upstream: str, day: date) -> Sequence[int]:
    async with house.store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.web", "spent_by_hour"), {"upstream": upstream, "day": day}
        )
        spent: dict[int, int] = dict(await cursor.fetchall())
    # A day of the clock change has 23 or 25 hours.
    return [spent.get(hour, 0) for hour in range(max([23, *spent]) + 1)]


async def reopen_one(asked: Asked) -> str:
    """Reopen the day of an upstream."""
    upstream = asked.text("upstream") or ""
    await read_quota(asked.store, upstream)
    await reopen(asked.store, upstream)
    return "/quota"


PAGES = (Page("/quota", "quota", quota, "quota"),)
ACTIONS = (Action("/quota/reopen", "quota.reopen", reopen_one),)
