"""What happened, put into the outbox by the transaction in which it happened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.types.json import Json

from hasat.settings.kinds import EventName
from hasat.store.queries import load_query

Severity = Literal["Info", "Warning", "Critical"]
Kind = Literal[EventName, "Test"]
"""The original service's six, one of Hasat's own, and what `hasat webhooks test` sends."""


@dataclass(frozen=True)
class Event:
    """Something that somebody may want to be told; the summary is for people."""

    kind: Kind
    severity: Severity
    summary: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    """When it happened; None means in the transaction that announces it."""


async def announce(conn: AsyncConnection[Any], event: Event) -> None:
    """Put the event into the outbox: it is told if the transaction commits, and only then."""
    await conn.execute(
        load_query("hasat.deliver", "announce"),
        {
            "kind": event.kind,
            "severity": event.severity,
            # PostgreSQL's texts know no NUL; a message about broken input may quote one.
            "summary": event.summary.replace("\0", "\ufffd"),
            "payload": Json(dict(event.payload)),
            "at": event.at,
        },
    )
