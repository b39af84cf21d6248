"""Quota: the windows and lanes of each upstream, and today's usage by hour and job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from hasat.budget import Quota, read_quota, reopen
from hasat.budget.quota import EndpointUse, LaneUse, OutcomeUse, Spender, Windows
from hasat.pages import Action, Page, PageContext, PageRequest
from hasat.pages.summaries import QuotaSummary, summarize_quota
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas
from hasat.web.charts import DayUsage

_MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class SpenderRow:
    """The requests of a job in a lane today."""

    job: str
    lane: str
    is_manual: bool
    """Whether the lane is not the job's own: manual runs use a lane without pacing."""
    spent: int
    refusals: int


@dataclass(frozen=True)
class UpstreamQuota:
    """The quota of one upstream today."""

    line: QuotaSummary
    windows: Windows
    day: DayUsage
    lanes: Sequence[LaneUse]
    spenders: Sequence[SpenderRow]
    outcomes: Sequence[OutcomeUse]
    endpoints: Sequence[EndpointUse]
    endpoint_count: int


@dataclass(frozen=True)
class Quotas:
    """The data of the page."""

    upstreams: Sequence[UpstreamQuota]


async def quota(request: PageRequest) -> Quotas:
    """Load the quota of every upstream."""
    found = await read_all_quotas(request.store, request.context.settings)
    return Quotas([await _upstream(request.context, one) for one in found])


async def _upstream(context: PageContext, quota: Quota) -> UpstreamQuota:
    w = quota.windows
    line = summarize_quota(quota)
    return UpstreamQuota(
        line=line,
        windows=w,
        day=DayUsage(
            now=w.now,
            starts_at=w.starts_at,
            ends_at=w.ends_at,
            limit=line.limit,
            target=w.target,
            by_hour=await _by_hour(context, w.upstream, w.day),
        ),
        lanes=quota.lanes,
        spenders=[_spender(context, one) for one in quota.spenders],
        outcomes=quota.outcomes,
        endpoints=sorted(quota.endpoints, key=lambda one: -one.spent)[:_MAX_ENDPOINTS],
        endpoint_count=len(quota.endpoints),
    )


def _spender(context: PageContext, one: Spender) -> SpenderRow:
    job = context.catalogue.jobs.get(one.job)
    is_manual = job is not None and job.lane != one.lane
    return SpenderRow(one.job, one.lane, is_manual, one.spent, one.refusals)


async def _by_hour(context: PageContext, upstream: str, day: date) -> Sequence[int]:
    async with context.store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.web", "usage_by_hour"), {"upstream": upstream, "day": day}
        )
        spent: dict[int, int] = dict(await cursor.fetchall())
    # Days on which the clocks change have 23 or 25 hours.
    return [spent.get(hour, 0) for hour in range(max([23, *spent]) + 1)]


async def reopen_day(request: PageRequest) -> str:
    """Reopen the quota day of an upstream."""
    upstream = request.text("upstream") or ""
    await read_quota(request.store, upstream)
    await reopen(request.store, upstream)
    return "/quota"


PAGES = (Page("/quota", "quota", quota, "quota"),)
ACTIONS = (Action("/quota/reopen", "quota.reopen", reopen_day),)
