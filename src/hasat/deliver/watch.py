"""What the delivering loop notices by itself: new versions, missing archives, changed health."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from hasat.clock import local_time
from hasat.deliver.event import Event, Severity, announce
from hasat.feed.cursor import Cursor
from hasat.store import Store
from hasat.store.queries import load_query

Health = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""The checks of all sources: a `status` (Healthy, Degraded, Unhealthy) and a `description` each."""

_PACKAGE = "hasat.deliver"
_SEVERITIES: dict[str, Severity] = {"Unhealthy": "Critical", "Degraded": "Warning"}


async def announce_versions(store: Store) -> int:
    """Announce DatasetChanged for every version that changed something; how many there were.

    The position moves in the same transaction, so each version is announced once over all machines.
    """
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "unseen_versions"))
        if await cursor.fetchone() == (False,):
            return 0
        await conn.execute(load_query(_PACKAGE, "see_datasets"))
        await conn.execute("SELECT FROM deliver.seen_version ORDER BY dataset FOR UPDATE")
        async with conn.cursor(row_factory=dict_row) as versions:
            await versions.execute(load_query(_PACKAGE, "new_versions"))
            rows = await versions.fetchall()
        for row in rows:
            if row["added"] or row["modified"] or row["removed"]:
                await announce(conn, _changed(row))
            await conn.execute(
                "UPDATE deliver.seen_version SET version = %s WHERE dataset = %s",
                [row["version"], row["dataset"]],
            )
    return len(rows)


async def announce_archive_failures(store: Store) -> None:
    """Announce MvRefreshFailed once for every dataset that cannot be archived any more.

    The original's event says that what is handed out lags behind what is committed; here that is
    true of archives alone.
    """
    async with store.connection() as conn:
        cursor = await conn.execute(
            "UPDATE feed.archive_failure SET announced = true WHERE NOT announced"
            " RETURNING dataset, failures, error"
        )
        for dataset, failures, error in await cursor.fetchall():
            await announce(
                conn,
                Event(
                    "MvRefreshFailed",
                    "Critical",
                    f"Değişiklikler kaydedildi, ancak {dataset} arşivi yazılamadı. "
                    "Yeniden denenecek.",
                    {"Dataset": dataset, "Attempts": failures, "Error": error},
                ),
            )


async def announce_health(store: Store, health: Health) -> None:
    """Announce HealthStatusChanged for every check that is no longer what it was last."""
    checks = await health()
    async with store.connection() as conn:
        for name, check in sorted(checks.items()):
            await _compare(conn, name, check)


async def _compare(conn: AsyncConnection[Any], name: str, check: Mapping[str, Any]) -> None:
    status = check["status"]
    await conn.execute(
        "INSERT INTO deliver.health (check_name, status) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        [name, status],
    )
    cursor = await conn.execute(
        "SELECT status FROM deliver.health WHERE check_name = %s FOR UPDATE", [name]
    )
    row = await cursor.fetchone()
    assert row is not None
    if row[0] == status:
        return
    await conn.execute(
        "UPDATE deliver.health SET status = %s, since = clock_timestamp() WHERE check_name = %s",
        [status, name],
    )
    told = "düzeldi" if status == "Healthy" else "bozuldu"
    await announce(
        conn,
        Event(
            "HealthStatusChanged",
            _SEVERITIES.get(status, "Info"),
            f"Sağlık kontrolü '{name}' {told}: {row[0]} → {status}.",
            {
                "CheckName": name,
                "PreviousStatus": row[0],
                "NewStatus": status,
                "Description": check.get("description") or "-",
            },
        ),
    )


def _changed(row: Mapping[str, Any]) -> Event:
    counts = {kind: row[kind] for kind in ("added", "modified", "removed")}
    return Event(
        "DatasetChanged",
        "Info",
        f"{row['dataset']}: {counts['added']} yeni, {counts['modified']} değişen, "
        f"{counts['removed']} silinen kayıt.",
        {
            "dataset": row["dataset"],
            "version": row["version"],
            "committedAt": local_time(row["committed_at"]),
            **counts,
            "records": row["records"],
            "digest": row["digest"],
            "epoch": str(row["epoch"]),
            "head": row["seq"],
            "after": str(Cursor(row["dataset"], row["epoch"], row["seq_before"])),
            "cursor": str(Cursor(row["dataset"], row["epoch"], row["seq"])),
        },
        at=row["committed_at"],
    )
