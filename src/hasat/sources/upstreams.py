"""The limits of the built-in sources' upstreams, as the settings declare them."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hasat.budget import EndpointLimit, Lane, Quota, Upstream, declare, read_quotas
from hasat.fetch import Endpoint
from hasat.settings import Settings
from hasat.store import Store

# Requests a lane needs per day until the ledger has real figures: estimates of the original
# collector for its plan. They are scaled down for a smaller plan, which follows fewer leagues.
_PLAN = 75_000
_FINALISE, _DAILY, _DETAILS = 1_500, 2_500, 5_000
_GUARD = 50_000


def football(settings: Settings) -> Upstream:
    """Return the limits of API-Football: per minute, and per day from midnight UTC."""
    limits = settings.football.rate_limiter
    bucket = limits.token_bucket_per_minute
    hard = min(bucket, limits.minute_limit or bucket)
    reserve, of_plan = limits.emergency_stop_threshold, 1.0
    if reserve is None:
        reserve, of_plan = limits.daily_limit // 10, 0.1
    lane = partial(Lane, keep=reserve, keep_share=of_plan)
    share = min(1.0, limits.daily_limit / _PLAN)
    # The default of 50,000 is two thirds of the original's plan and scales with the plan; any other
    # value is absolute.
    guard = settings.football.verification.min_daily_quota
    of_guard = 2 / 3 if guard == _GUARD else 1.0
    verify = lane("verify", paced=True, share=0.05)
    if reserve < min(guard, int(limits.daily_limit * of_guard)):
        verify = replace(verify, keep=guard, keep_share=of_guard)
    return Upstream(
        "football",
        zone="UTC",
        day_limit=limits.daily_limit,
        target=limits.usage_target_percent / 100,
        minute_limit=min(limits.minute_soft_limit, hard),
        minute_hard=hard,
        opening_seconds=limits.opening_minutes * 60,
        shadow=limits.shadow,
        lanes=(
            lane("finalise", needs=round(_FINALISE * share), early=True),
            lane("daily", needs=round(_DAILY * share), early=True),
            lane("details", needs=round(_DETAILS * share)),
            lane("backfill", paced=True),
            verify,
        ),
    )


def tkgm(settings: Settings, endpoints: Sequence[Endpoint] = ()) -> Upstream:
    """Return the limits of TKGM: per endpoint, points a day and a pause between two requests."""
    limits = settings.tkgm
    return Upstream(
        "tkgm",
        zone="Europe/Istanbul",
        each_endpoint=EndpointLimit(limits.daily_per_endpoint, limits.min_interval_ms / 1000),
        endpoints={one.url: EndpointLimit(one.daily, one.min_interval) for one in endpoints},
    )


def tkgm_registry(settings: Settings) -> Upstream:
    """Return the limits of direct requests to TKGM, which counts them by egress address."""
    limits = settings.tkgm.registry
    return Upstream(
        f"tkgm@{limits.egress or socket.gethostname()}",
        zone="Europe/Istanbul",
        day_limit=limits.daily,
        minute_limit=limits.per_minute,
        lanes=(Lane("daily", early=True),),
        opening_seconds=0,
    )


def declared_upstreams(settings: Settings) -> tuple[Upstream, ...]:
    """Return every upstream with a budget."""
    return football(settings), tkgm(settings)


async def read_all_quotas(
    store: Store, settings: Settings, *, outcomes: bool = True
) -> list[Quota]:
    """Return the quotas of all upstreams, including those that have had no request yet."""
    found = await read_quotas(store, outcomes=outcomes)
    known = {quota.windows.upstream for quota in found}
    if missing := [each for each in declared_upstreams(settings) if each.name not in known]:
        async with store.connection() as conn:
            for upstream in missing:
                await declare(conn, upstream, if_missing=True)
        found = await read_quotas(store, outcomes=outcomes)
    return found
