"""Events: written to the outbox in the transaction in which they happen.

The dispatcher itself finds new versions, failed archives and changed health.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Json

from hasat.clock import local_time
from hasat.feed.cursor import Cursor
from hasat.feed.guard import Measure
from hasat.settings.events import TEST, event_kinds
from hasat.store import Store
from hasat.store.queries import load_query

Severity = Literal["Info", "Warning", "Critical"]


@dataclass(frozen=True)
class Event:
    """Something that endpoints may be notified of; the summary is for people."""

    kind: str
    """The name of a kind of the platform or of an installed source."""
    severity: Severity
    summary: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    """When it happened; None for the time of the transaction."""


async def publish_event(conn: AsyncConnection[Any], event: Event) -> None:
    """Write the event to the outbox; it is sent if and only if the transaction commits."""
    if event.kind != TEST.name and event.kind not in event_kinds():
        raise ValueError(f"No installed source declares the event {event.kind!r}.")
    await conn.execute(
        load_query("hasat.deliver", "add_event"),
        {
            "kind": event.kind,
            "severity": event.severity,
            # PostgreSQL cannot store NUL; a message about broken input may contain one.
            "summary": event.summary.replace("\0", "\ufffd"),
            "payload": Json(dict(event.payload)),
            "at": event.at,
        },
    )


Health = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""The checks of all sources: a `status` (Healthy, Degraded, Unhealthy) and a `description` each."""

MAX_KEYS = 100
"""The number of keys up to which DatasetChanged names them."""
_PACKAGE = "hasat.deliver"
_SEVERITIES: dict[str, Severity] = {"Unhealthy": "Critical", "Degraded": "Warning"}


async def publish_versions(store: Store) -> int:
    """Publish DatasetChanged for every version with changes; return the number of new versions.

    The position moves in the same transaction, so all machines together publish each once.
    """
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "unseen_versions"))
        if await cursor.fetchone() == (False,):
            return 0
        await conn.execute(load_query(_PACKAGE, "add_seen_datasets"))
        await conn.execute("SELECT FROM deliver.seen_version ORDER BY dataset FOR UPDATE")
        async with conn.cursor(row_factory=dict_row) as versions:
            await versions.execute(load_query(_PACKAGE, "new_versions"), {"max_keys": MAX_KEYS})
            rows = await versions.fetchall()
        for row in rows:
            if row["added"] or row["modified"] or row["removed"]:
                await publish_event(conn, _changed(row))
            await conn.execute(
                "UPDATE deliver.seen_version SET version = %s WHERE dataset = %s",
                [row["version"], row["dataset"]],
            )
    return len(rows)


async def publish_holds(store: Store) -> None:
    """Publish RemovalGuardTriggered for every run that the guard has held."""
    async with store.connection() as conn:
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(
                "UPDATE feed.hold SET announced = true WHERE NOT announced"
                " RETURNING id, preview, seconds"
            )
            rows = await cursor.fetchall()
        for row in rows:
            await publish_event(conn, _guard_triggered(row))


def _guard_triggered(row: Mapping[str, Any]) -> Event:
    """Return the event of a hold; the payload has removals first, as the original's has."""
    over = [one for one in row["preview"]["measures"] if one["exceeded"]]
    removal = next((one for one in over if one["what"] == "removed"), None)
    payload: dict[str, Any] = {"Run": row["id"], "Duration": format_duration(row["seconds"])}
    if removal is not None:
        count = row["preview"]["datasets"][removal["subject"]]
        payload |= {
            "DocumentType": removal["subject"],
            "RemovalCount": count["removed"],
            "TotalCount": count["total"] - count["added"] + count["removed"],
            "RemovalRatio": f"{removal['value']:.1f}%",
            "Threshold": f"{removal['limit']:g}%",
        }
    payload["Measures"] = [
        {
            "Subject": one["subject"],
            "What": one["what"],
            "Percent": one["value"],
            "Limit": one["limit"],
        }
        for one in over
    ]
    measures = "; ".join(str(_measure(one)) for one in over)
    return Event(
        "RemovalGuardTriggered",
        "Warning",
        f"Koruma tetiklendi: {measures}. Hiçbir şey değiştirilmedi; "
        f"{row['id']} numaralı çalıştırma onay bekliyor.",
        payload,
    )


def _measure(stored: Mapping[str, Any]) -> Measure:
    return Measure(*(stored[name] for name in ("subject", "what", "value", "limit")))


def format_duration(seconds: float) -> str:
    """Return a duration as the original writes it: hh:mm:ss.fff."""
    rest, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(rest, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}.{thousandths:03d}"


async def publish_archive_failures(store: Store) -> None:
    """Publish MvRefreshFailed once for every dataset that can no longer be archived.

    The original's event says that served data lags behind committed data; here that applies to
    archives alone.
    """
    async with store.connection() as conn:
        cursor = await conn.execute(
            "UPDATE feed.archive_failure SET announced = true WHERE NOT announced"
            " RETURNING dataset, failures, error"
        )
        for dataset, failures, error in await cursor.fetchall():
            await publish_event(
                conn,
                Event(
                    "MvRefreshFailed",
                    "Critical",
                    f"Değişiklikler kaydedildi, ancak {dataset} arşivi yazılamadı. "
                    "Yeniden denenecek.",
                    {"Dataset": dataset, "Attempts": failures, "Error": error},
                ),
            )


async def publish_health_changes(store: Store, health: Health) -> None:
    """Publish HealthStatusChanged for every check whose status has changed."""
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
    verb = "düzeldi" if status == "Healthy" else "bozuldu"
    await publish_event(
        conn,
        Event(
            "HealthStatusChanged",
            _SEVERITIES.get(status, "Info"),
            f"Sağlık kontrolü '{name}' {verb}: {row[0]} → {status}.",
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
            **_keys(row),
        },
        at=row["committed_at"],
    )


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed keys if they are few, and the feed still has all of them."""
    keys = row["keys"] or []
    total = row["added"] + row["modified"] + row["removed"]
    return {"keys": keys} if keys and len(keys) == total else {}
