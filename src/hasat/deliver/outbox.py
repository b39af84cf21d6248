"""The outbox: which endpoint still has to be told what, and how it went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from hasat.deliver.endpoints import Endpoint
from hasat.deliver.event import Event, Kind, Severity
from hasat.errors import ConflictError, NotFoundError
from hasat.messages import change_text, msg, restored, stored, template
from hasat.settings.source_tree import Webhooks
from hasat.store import Store
from hasat.store.audit import record_action
from hasat.store.queries import load_query

State = Literal["waiting", "delivered", "dead"]
_PACKAGE = "hasat.deliver"
_REMOVED = template("The endpoint is no longer in the settings.")
_ADDED_AGAIN = template("The endpoint was removed from the settings and added again later.")


@dataclass(frozen=True)
class Waiting:
    """A delivery whose turn it is."""

    id: int
    message_id: UUID
    kind: Kind
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
    """One event for one endpoint, as people look at it."""

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
        """As the API and `--json` show it."""
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
class Tally:
    """The deliveries of one endpoint."""

    endpoint: str
    waiting: int
    delivered: int
    dead: int
    oldest_seconds: float
    """For how long the oldest one waits; 0 if none does."""


async def subscribe(store: Store, endpoints: Sequence[Endpoint]) -> None:
    """Record the endpoints of a process that starts; a new one receives what happens from now on.

    The endpoints that are not among them are removed.
    """
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "subscribe"), {**_subscriptions(endpoints), "error": _ADDED_AGAIN}
        )


async def renew(store: Store, endpoints: Sequence[Endpoint]) -> None:
    """Record that the endpoints are still configured, whatever other processes have."""
    async with store.connection() as conn:
        await conn.execute(load_query(_PACKAGE, "renew_subscriptions"), _subscriptions(endpoints))


def _subscriptions(endpoints: Sequence[Endpoint]) -> dict[str, list[str]]:
    pairs = [
        (endpoint.name, kind)
        for endpoint in endpoints
        for kind in get_args(Kind)
        if endpoint.wants(kind)
    ]
    return {"endpoints": [name for name, _ in pairs], "kinds": [kind for _, kind in pairs]}


async def hand_out(store: Store) -> int:
    """Create a delivery of every new event for its subscribers; how many events were new."""
    async with store.connection() as conn:
        done = await conn.execute(load_query(_PACKAGE, "hand_out"))
        return done.rowcount


async def next_delivery(store: Store, endpoint: str) -> Waiting | None:
    """The endpoint's oldest delivery that waits, if it is due."""
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Waiting)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "next_delivery"), {"endpoint": endpoint})
        return await cursor.fetchone()


async def note_delivered(store: Store, delivery: int, status: int) -> None:
    async with store.connection() as conn:
        await conn.execute(load_query(_PACKAGE, "delivered"), {"id": delivery, "status": status})


async def note_failed(
    store: Store,
    delivery: int,
    webhooks: Webhooks,
    *,
    error: str,
    pause_seconds: float,
    status: int | None = None,
    final: bool = False,
) -> State | None:
    """Write a failed try down; what became of the delivery, or None if it was settled meanwhile."""
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
    limit: int = 100,
) -> list[Delivery]:
    """Deliveries, newest first; `before` goes on after an earlier list."""
    return await _read(store, endpoint=endpoint, state=state, before=before, limit=limit)


async def get_delivery(store: Store, delivery: int) -> Delivery:
    found = await _read(store, id=delivery)
    if not found:
        raise NotFoundError(
            msg("There is no delivery {delivery}.", delivery=delivery),
            remedy=msg("`hasat webhooks deliveries` shows those that are kept."),
        )
    return found[0]


async def replay(
    store: Store, deliveries: Sequence[int] | None = None, endpoint: str | None = None
) -> list[int]:
    """Send these once more, or all dead letters; what waits already comes after them."""
    if deliveries is not None:
        for one in deliveries:
            if (await get_delivery(store, one)).state == "waiting":
                raise ConflictError(msg("Delivery {one} waits already.", one=one))
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "replay"),
            {"ids": None if deliveries is None else list(deliveries), "endpoint": endpoint},
        )
        sent = sorted(row[0] for row in await cursor.fetchall())
        named = ", ".join(map(str, deliveries)) if deliveries is not None else endpoint or "all"
        await record_action(conn, named, count=len(sent), deliveries=sent)
        return sent


async def tallies(store: Store) -> list[Tally]:
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Tally)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "delivery_counts"))
        return await cursor.fetchall()


async def tidy(store: Store, webhooks: Webhooks, endpoints: Sequence[Endpoint]) -> None:
    """Forget what is past its keep; give up what waits for an endpoint that is gone."""
    names = [endpoint.name for endpoint in endpoints]
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "bury"),
            {"endpoints": names, "max_age": webhooks.max_age, "error": _REMOVED},
        )
        await conn.execute(load_query(_PACKAGE, "forget"), {"days": webhooks.keep_days})


async def _read(store: Store, **values: Any) -> list[Delivery]:
    every = {"id": None, "endpoint": None, "state": None, "before": None, "limit": 1}
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Delivery)) as cursor:
        await cursor.execute(load_query(_PACKAGE, "list_deliveries"), every | values)
        return await cursor.fetchall()


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")
