"""The outbox: deliveries of events to endpoints, their state, and the leases of their senders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from hasat.deliver.events import Event, Severity
from hasat.deliver.webhook_endpoints import Endpoint
from hasat.errors import ConflictError, NotFoundError
from hasat.messages import change_text, msg, restored, stored, template
from hasat.settings.events import TEST, event_kinds
from hasat.settings.platform_sections import Webhooks
from hasat.store import Store
from hasat.store.audit import record_action
from hasat.store.queries import load_query

State = Literal["waiting", "delivered", "dead"]
_PACKAGE = "hasat.deliver"
_REMOVED = template("The endpoint is no longer in the settings.")
_ADDED_AGAIN = template("The endpoint was removed from the settings and added again later.")


@dataclass(frozen=True)
class DueDelivery:
    """A delivery that is due."""

    id: int
    message_id: UUID
    kind: str
    severity: Severity
    summary: str
    payload: Mapping[str, Any]
    at: datetime
    attempts: int

    @property
    def event(self) -> Event:
        return Event(self.kind, self.severity, self.summary, self.payload)


@dataclass(frozen=True)
class Delivery:
    """One event for one endpoint, with its state."""

    id: int
    message_id: UUID
    endpoint: str
    kind: str
    severity: str
    summary: str
    payload: Mapping[str, Any]
    at: datetime
    state: State
    attempts: int
    next_at: datetime
    settled_at: datetime | None
    last_status: int | None
    last_error: str | None
    last_error_data: Mapping[str, Any] | None
    """The template and parameters of the error."""

    def public(self) -> dict[str, Any]:
        """Return the fields that the API and `--json` show."""
        return {
            "id": self.id,
            "messageId": f"msg_{self.message_id.hex}",
            "endpoint": self.endpoint,
            "event": self.kind,
            "severity": self.severity,
            "summary": self.summary,
            "at": self.at,
            "state": self.state,
            "failedAttempts": self.attempts,
            "nextAttemptAt": self.next_at if self.state == "waiting" else None,
            "settledAt": self.settled_at,
            "lastStatus": self.last_status,
            "lastError": restored(self.last_error, self.last_error_data),
        }


@dataclass(frozen=True)
class DeliveryCounts:
    """The numbers of deliveries of one endpoint by state."""

    endpoint: str
    waiting: int
    delivered: int
    dead: int
    oldest_seconds: float
    """Age of the oldest waiting delivery; 0 if there is none."""


async def subscribe(store: Store, endpoints: Sequence[Endpoint]) -> None:
    """Record the endpoints of a process that starts; a new one receives what happens from now on.

    The endpoints that are not among them are removed.
    """
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "subscribe"), {**_subscriptions(endpoints), "error": _ADDED_AGAIN}
        )


async def renew_subscriptions(store: Store, endpoints: Sequence[Endpoint]) -> None:
    """Record that the endpoints are still configured, whatever other processes have."""
    async with store.connection() as conn:
        await conn.execute(load_query(_PACKAGE, "renew_subscriptions"), _subscriptions(endpoints))


def _subscriptions(endpoints: Sequence[Endpoint]) -> dict[str, list[str]]:
    pairs = [
        (endpoint.name, kind)
        for endpoint in endpoints
        for kind in (*event_kinds(), TEST.name)
        if endpoint.accepts(kind)
    ]
    return {"endpoints": [name for name, _ in pairs], "kinds": [kind for _, kind in pairs]}


async def create_deliveries(store: Store) -> int:
    """Create the deliveries of new events for their subscribers; return the number of events."""
    async with store.connection() as conn:
        done = await conn.execute(load_query(_PACKAGE, "create_deliveries"))
        return done.rowcount


async def next_delivery(store: Store, endpoint: str) -> DueDelivery | None:
    """Return the endpoint's oldest waiting delivery if it is due."""
    async with (
        store.connection() as conn,
        conn.cursor(row_factory=class_row(DueDelivery)) as cursor,
    ):
        await cursor.execute(load_query(_PACKAGE, "next_delivery"), {"endpoint": endpoint})
        return await cursor.fetchone()


async def save_success(store: Store, delivery: int, status: int) -> None:
    async with store.connection() as conn:
        await conn.execute(load_query(_PACKAGE, "delivered"), {"id": delivery, "status": status})


async def save_failure(
    store: Store,
    delivery: int,
    webhooks: Webhooks,
    *,
    error: str,
    pause_seconds: float,
    status: int | None = None,
    final: bool = False,
) -> State | None:
    """Record a failed attempt; return the new state, or None if it was settled meanwhile."""
    error = change_text(error, _storable)
    data = stored(error)
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "failed"),
            {
                "id": delivery,
                "error": error,
                "error_data": None if data is None else Jsonb(data),
                "status": status,
                "pause": pause_seconds,
                "final": final,
                "max_attempts": webhooks.max_attempts,
                "max_age": webhooks.max_age,
            },
        )
        row = await cursor.fetchone()
    return None if row is None else row[0]


async def list_deliveries(
    store: Store,
    *,
    endpoint: str | None = None,
    state: State | None = None,
    before: int | None = None,
    owner: str | None = None,
    limit: int = 100,
) -> list[Delivery]:
    """Return deliveries, newest first; `before` continues an earlier list.

    With `owner`, only those of its watch lists.
    """
    return await _read(
        store, endpoint=endpoint, state=state, before=before, owner=owner, limit=limit
    )


async def get_delivery(store: Store, delivery: int, owner: str | None = None) -> Delivery:
    found = await _read(store, id=delivery, owner=owner)
    if not found:
        raise NotFoundError(
            msg("There is no delivery {delivery}.", delivery=delivery),
            remedy=msg("`hasat webhooks deliveries` lists them; old ones expire."),
        )
    return found[0]


async def replay(
    store: Store,
    deliveries: Sequence[int] | None = None,
    endpoint: str | None = None,
) -> list[int]:
    """Send these deliveries again, or all dead letters, before those that are waiting."""
    if deliveries is not None:
        for one in deliveries:
            if (await get_delivery(store, one)).state == "waiting":
                raise ConflictError(msg("Delivery {one} is already waiting.", one=one))
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "replay"),
            {
                "ids": None if deliveries is None else list(deliveries),
                "endpoint": endpoint,
            },
        )
        sent = sorted(row[0] for row in await cursor.fetchall())
        named = ", ".join(map(str, deliveries)) if deliveries is not None else endpoint or "all"
        await record_action(conn, named, count=len(sent), deliveries=sent)
        return sent


async def count_deliveries(store: Store) -> list[DeliveryCounts]:
    async with (
        store.connection() as conn,
        conn.cursor(row_factory=class_row(DeliveryCounts)) as cursor,
    ):
        await cursor.execute(load_query(_PACKAGE, "delivery_counts"))
        return await cursor.fetchall()


async def delete_expired(store: Store, webhooks: Webhooks, endpoints: Sequence[Endpoint]) -> None:
    """Delete expired events; turn deliveries to removed endpoints into dead letters."""
    names = [endpoint.name for endpoint in endpoints]
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "give_up_removed"),
            {"endpoints": names, "max_age": webhooks.max_age, "error": _REMOVED},
        )
        await conn.execute(load_query(_PACKAGE, "delete_expired"), {"days": webhooks.keep_days})


async def _read(store: Store, **values: Any) -> list[Delivery]:
    every = {
        **dict.fromkeys(("id", "endpoint", "state", "before", "owner")),
        "limit": 1,
    }
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Delivery)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "list_deliveries"), every | values)
        return await cursor.fetchall()


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")


LEASE_SECONDS = 15.0
"""How long the work of a killed process waits for another, plus the time of one attempt."""


async def hold_lease(store: Store, name: str, holder: UUID, seconds: float) -> bool:
    """Take or extend a lease; return False while another process holds it.

    It is a row with an end by the database's clock: it needs no session, so it works through
    PgBouncer, and that of a killed process expires.
    """
    async with store.connection() as conn:
        taken = await conn.execute(
            load_query("hasat.deliver", "lease_hold"),
            {"name": name, "holder": holder, "seconds": seconds},
        )
        return taken.rowcount == 1


async def release_leases(store: Store, holder: UUID) -> None:
    """Release all leases of this holder, so that others need not wait for their end."""
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.lease WHERE holder = %s", [holder])
