"""The request budgets of the upstreams that the active sources declare."""

from hasat.budget import Quota, Upstream, declare, read_quotas
from hasat.settings import Settings
from hasat.source.installed import active_sources
from hasat.source.parts import upstreams_of
from hasat.store import Store


def declared_upstreams(settings: Settings) -> tuple[Upstream, ...]:
    """Return every upstream of the active sources."""
    return tuple(
        upstream
        for source in active_sources(settings)
        for upstream in upstreams_of(source, settings)
    )


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
