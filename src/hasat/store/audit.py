"""The audit record: who did what, from where, why, when and with what outcome.

An interface that offers an action opens `audited(...)` around it. The function that changes
something calls `record_action(connection)` in its own transaction, so that the change and its
record are committed together. Actions that no one requested, such as scheduled runs, are not
recorded.
"""

import os
import pwd
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from hasat.errors import DatabaseError, HasatError
from hasat.messages import stored
from hasat.store.queries import load_query
from hasat.store.store import Store
from hasat.text import mask_addresses

ActorKind = Literal["key", "login", "signature", "cli", "mcp", "local", "anonymous"]
AuditOutcome = Literal["started", "done", "refused", "failed"]

ACTIONS = (
    "archive.write",
    "database.restore",
    "delivery.replay",
    "demo.replay",
    "dataset.rebuild",
    "hold.approve",
    "hold.reject",
    "key.create",
    "key.datasets",
    "key.limit",
    "key.revoke",
    "login",
    "logout",
    "quota.reopen",
    "receipt.rotate",
    "run.queue",
    "run.retry",
    "run.start",
    "run.stop",
    "watchlist.create",
    "watchlist.delete",
    "watchlist.keys",
    "watchlist.replace",
)
"""The codes of the platform's actions; a source declares its own."""

MAX_TEXT = 500
MAX_ITEMS = 50
_MAX_DEPTH = 4

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Actor:
    """The actor and its address; `id` is the caller's id where names are not unique."""

    name: str
    kind: ActorKind
    address: str
    id: str | None = None


@dataclass(frozen=True)
class AuditRecord:
    """One stored record."""

    id: int
    at: datetime
    actor: str
    actor_kind: ActorKind
    address: str
    action: str
    object: str
    reason: str | None
    outcome: AuditOutcome
    detail: Mapping[str, Any]


@dataclass
class AuditEntry:
    """An action in progress, and the record that it leaves."""

    actor: Actor
    action: str
    object: str = ""
    reason: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    token: UUID = field(default_factory=uuid4)
    written: bool = False

    async def write(self, connection: AsyncConnection[Any], outcome: AuditOutcome = "done") -> None:
        """Insert the record; one that was committed before stays as it is."""
        caller = {} if self.actor.id is None else {"caller": self.actor.id}
        values = {
            "token": self.token,
            "actor": _clean(self.actor.name),
            "kind": self.actor.kind,
            "address": _clean(self.actor.address),
            "action": self.action,
            "object": _clean(self.object),
            "reason": _clean(self.reason) if self.reason else None,
            "outcome": outcome,
            "detail": Jsonb(_clean(caller | self.detail)),
        }
        await connection.execute(load_query("hasat.store", "audit_write"), values)
        self.written = True


_current: ContextVar[AuditEntry | None] = ContextVar("hasat_audit_entry", default=None)


@asynccontextmanager
async def audited(
    store: Store,
    actor: Actor,
    action: str,
    target: object = "",
    *,
    reason: str | None = None,
    takes_long: bool = False,
    **detail: Any,
) -> AsyncIterator[AuditEntry]:
    """Record what happens inside as one action.

    An error is recorded as refused (the caller's mistake) or failed. An action that `takes_long`
    is many transactions: it is recorded when it starts, and a second time when it ends.
    """
    entry = AuditEntry(actor, action, str(target), reason, dict(detail))
    if takes_long:
        async with store.connection() as connection:
            await replace(entry, token=uuid4()).write(connection, "started")
    before = _current.get()
    _current.set(entry)
    try:
        yield entry
    except BaseException as error:
        await _record_error(store, entry, error)
        raise
    finally:
        _current.set(before)
    if not entry.written:
        async with store.connection() as connection:
            await entry.write(connection)


def current_action() -> AuditEntry | None:
    """Return the action in progress: who does what, and why."""
    return _current.get()


async def record_action(
    connection: AsyncConnection[Any],
    target: object,
    *,
    action: str | None = None,
    outcome: AuditOutcome = "done",
    **detail: Any,
) -> None:
    """Write the record of the action in progress, if there is one, in this transaction."""
    if (entry := _current.get()) is None:
        return
    entry.object = str(target)
    entry.action = action or entry.action
    entry.detail |= detail
    await entry.write(connection, outcome)


def describe_action(
    *,
    actor: str | None = None,
    kind: ActorKind | None = None,
    reason: str | None = None,
    **detail: Any,
) -> None:
    """Add details to the action in progress."""
    if (entry := _current.get()) is not None:
        entry.actor = replace(
            entry.actor, name=actor or entry.actor.name, kind=kind or entry.actor.kind
        )
        entry.reason = reason or entry.reason
        entry.detail |= detail


def command_actor(kind: ActorKind = "cli") -> Actor:
    """Return the user of the operating system who runs this process, on this host."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = str(number)
    return Actor(name, kind, socket.gethostname())


async def list_audit(
    store: Store,
    *,
    actor: str | None = None,
    action: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[AuditRecord]:
    """Return records, newest first; `action` is a code or its first word."""
    values = {"actor": actor, "action": action, "before": before, "limit": limit}
    return await store.rows(AuditRecord, load_query("hasat.store", "audit_list"), values)


async def has_audit_table(connection: AsyncConnection[Any]) -> bool:
    """Return whether the table exists: the database may be empty or older than this version."""
    cursor = await connection.execute("SELECT to_regclass('jobs.audit') IS NOT NULL")
    return await cursor.fetchone() == (True,)


async def read_all(connection: AsyncConnection[Any]) -> Sequence[Mapping[str, Any]]:
    """Return every record with its token, oldest first; none if the table does not exist."""
    if not await has_audit_table(connection):
        return []
    async with connection.cursor(row_factory=dict_row) as rows:
        await rows.execute("SELECT * FROM jobs.audit ORDER BY id")
        return await rows.fetchall()


async def carry_over(store: Store, records: Sequence[Mapping[str, Any]]) -> None:
    """Add the records that are missing, such as those that a restored backup does not have."""
    values = [{**one, "detail": Jsonb(one["detail"])} for one in records]
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.executemany(load_query("hasat.store", "audit_carry"), values)


def error_detail(error: HasatError) -> dict[str, Any]:
    """Return the details of an error for the record of a failed action."""
    detail = {"error": error.code, "message": error.message}
    data = stored(error.message)
    return {**detail, "messageData": data} if data else detail


async def _record_error(store: Store, entry: AuditEntry, error: BaseException) -> None:
    """Record why an action failed; the error itself is raised in any case."""
    known = _known_error(error)
    if isinstance(known, DatabaseError) or isinstance(error, psycopg.OperationalError):
        log.warning("audit.not_recorded", action=entry.action, actor=entry.actor.name)
        return
    if known is not None:
        entry.detail |= error_detail(known)
    else:
        entry.detail |= {"error": type(error).__name__}
    refused = known is not None and known.status < 500
    try:
        async with store.connection() as connection:
            await entry.write(connection, "refused" if refused else "failed")
    except (DatabaseError, psycopg.Error) as problem:
        log.warning("audit.not_recorded", action=entry.action, reason=str(problem))


def _known_error(error: BaseException | None) -> HasatError | None:
    while error is not None and not isinstance(error, HasatError):
        error = error.__cause__
    return error


def _clean(value: Any, depth: int = 0) -> Any:
    """Return a value as it may be stored: short, without NUL, credentials in addresses masked."""
    if isinstance(value, str):
        text = mask_addresses(value.replace("\0", "")).encode("utf-8", "replace").decode()
        return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        some = list(value.items())[:MAX_ITEMS]
        return {_clean(str(key)): _clean(one, depth + 1) for key, one in some}
    if isinstance(value, list | tuple):
        return [_clean(one, depth + 1) for one in value[:MAX_ITEMS]]
    return _clean(str(value))
