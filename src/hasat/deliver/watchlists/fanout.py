"""Fan-out: changes of the feed become deliveries of the watch lists that they match.

All of it is SQL over sets: lists of keys of one dataset together, a list with a filter by itself.
A list's position, its collected changes and its deliveries commit together, and the list is locked
meanwhile, so each change is collected once however many processes do this and whichever is killed.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import structlog
from psycopg import AsyncConnection, sql

from hasat.deliver.watchlists.lists import PACKAGE, parse_filter
from hasat.errors import UsageError
from hasat.feed.dataset import Dataset
from hasat.feed.records import match_body
from hasat.store import Store
from hasat.store.queries import load_query

WINDOW = 10_000
"""Changes that one transaction looks at."""
MAX_CHANGES = 100
MAX_CHANGES_IN_DIGEST = 1000
MAX_BYTES = 500_000
"""How much of bodies a message has, not counting its last change."""

_DUE = sql.SQL(load_query(PACKAGE, "due"))
_OF_KEYS = sql.SQL(
    "JOIN deliver.watchlist_key AS k ON k.key = c.key AND k.since < c.seq"
    " JOIN behind AS b ON b.id = k.watchlist"
)
_OF_FILTER = sql.SQL(
    "JOIN behind AS b ON"
    " EXISTS (SELECT FROM (SELECT c.key, c.body) AS m WHERE m.body IS NOT NULL AND {condition})"
    " OR EXISTS (SELECT FROM (SELECT c.key, c.before AS body) AS m"
    " WHERE m.body IS NOT NULL AND {condition})"
)

log = structlog.get_logger(__name__)


async def fan_out(store: Store, datasets: Mapping[str, Dataset], zone: str) -> bool:
    """Create the deliveries of the next changes of each list; return whether any list was due."""
    async with store.connection() as conn:
        is_due = sql.SQL(load_query(PACKAGE, "is_due")).format(due=_DUE)
        if await (await conn.execute(is_due)).fetchone() == (False,):
            return False
        # A separate statement: the next ones see what was committed before the locks were taken.
        lock = sql.SQL(load_query(PACKAGE, "lock_due")).format(due=_DUE)
        rows = await (await conn.execute(lock)).fetchall()
        lists = [number for number, *_ in rows]
        if not lists:
            return False
        gaps = await conn.execute(load_query(PACKAGE, "note_gaps"), {"lists": lists})
        for name, dataset, reason in await gaps.fetchall():
            log.warning("watchlist.gap", watchlist=name, dataset=dataset, reason=reason)
        with_keys: dict[str, list[int]] = defaultdict(list)
        for number, dataset, filter_ in rows:
            if filter_ is None:
                with_keys[dataset].append(number)
            elif dataset in datasets:
                await _collect_filtered(conn, datasets[dataset], number, filter_)
        for dataset, numbers in with_keys.items():
            await _collect(conn, dataset, numbers, _OF_KEYS)
        values = {
            "lists": lists,
            "window": WINDOW,
            "most": MAX_CHANGES,
            "max_in_digest": MAX_CHANGES_IN_DIGEST,
            "bytes": MAX_BYTES,
        }
        await conn.execute(load_query(PACKAGE, "compose_messages"), values)
        await conn.execute(load_query(PACKAGE, "next_digests"), {"lists": lists, "zone": zone})
    return True


async def _collect_filtered(
    conn: AsyncConnection[Any], dataset: Dataset, number: int, conditions: Mapping[str, Any]
) -> None:
    """Collect what matches a filter before or after the change.

    A record that leaves the filter is a change of the list too.
    """
    try:
        selection = parse_filter(dataset, conditions)
    except UsageError as error:
        # A column that the source no longer declares.
        log.warning("watchlist.filter_invalid", watchlist=number, reason=error.message)
        return
    condition, values = match_body(selection.filters)
    await _collect(conn, dataset.name, [number], _OF_FILTER.format(condition=condition), values)


async def _collect(
    conn: AsyncConnection[Any],
    dataset: str,
    lists: list[int],
    matches: sql.Composable,
    values: Mapping[str, Any] | None = None,
) -> None:
    query = sql.SQL(load_query(PACKAGE, "collect_changes")).format(matches=matches)
    await conn.execute(
        query, {"dataset": dataset, "lists": lists, "window": WINDOW, **(values or {})}
    )
