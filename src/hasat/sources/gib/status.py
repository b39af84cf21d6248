"""What the source says of itself: the original service's status, and its part of /health."""

from collections.abc import Mapping
from typing import Any

from psycopg.rows import dict_row

from hasat.clock import local_time
from hasat.settings import Settings
from hasat.sources.gib.search_rows import search_state
from hasat.store import Store
from hasat.store.queries import load_query

ORIGINAL_OUTCOME = {
    "done": "success",
    "nothing": "success",
    "held": "partial",
    "skipped": "partial",
}


async def status(store: Store, settings: Settings) -> Mapping[str, Any]:
    """When the lists were last synchronised, how that went, and how many taxpayers there are."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.gib", "status"))
        row = await cursor.fetchone()
        search = await search_state(conn)
    assert row is not None
    last_sync = row["last_sync_at"]
    seconds = row["last_sync_seconds"]
    return {
        "lastSyncAt": local_time(last_sync) if last_sync else None,
        "eInvoiceUserCount": row["einvoice"],
        "eDespatchUserCount": row["edespatch"],
        "lastSyncDuration": None if seconds is None else _duration(float(seconds)),
        "lastSyncStatus": ORIGINAL_OUTCOME.get(row["outcome"], "failed")
        if row["outcome"]
        else None,
        "lastSyncError": row["error"],
        "lastAttemptAt": local_time(row["attempt_at"]) if row["attempt_at"] else None,
        "lastFailureAt": local_time(row["failure_at"]) if row["failure_at"] else None,
        "heldRuns": row["held"],
        "searchReady": not search.unready,
        "remarks": [remark] if (remark := search.remark()) else [],
        "checks": {"sync_freshness": _freshness(row, settings.gib.max_sync_staleness_hours)},
    }


def _freshness(row: Mapping[str, Any], stale_hours: int) -> dict[str, Any]:
    if row["last_sync_at"] is None:
        return {"status": "Degraded", "description": "The lists were never synchronised."}
    if row["hours"] > stale_hours:
        told = f"The last good synchronisation is {row['hours']:.0f} hours old."
        return {"status": "Degraded", "description": told}
    if row["outcome"] in {"failed", "set_aside"}:
        return {"status": "Degraded", "description": "The last synchronisation failed."}
    return {"status": "Healthy"}


def _duration(seconds: float) -> str:
    """As .NET writes a TimeSpan."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:010.7f}"
