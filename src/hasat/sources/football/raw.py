"""Answers kept as they came, in raw.api_responses: what everything else can be rebuilt from."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from hasat.sources.football.envelope import Envelope
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"


@dataclass(frozen=True)
class Answer:
    """One answer: to which question, and every byte of it."""

    endpoint: str
    parameters: Mapping[str, str]
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Kept(NamedTuple):
    """Where an answer lies, and whether it says anything that the last one did not."""

    id: int
    is_new: bool


async def keep(
    conn: AsyncConnection[Any],
    answer: Answer,
    envelope: Envelope,
    *,
    run: int | None,
    leagues: Collection[int] | None = None,
) -> Kept:
    """Write an answer down, in the transaction of whoever uses it.

    `leagues` are those that are let into CORE with it: RAW alone has all that were told.
    """
    await conn.execute("SELECT raw.ensure_month(clock_timestamp())")
    cursor = await conn.execute(
        statement(_ROOM, "keep_answer"),
        {
            "endpoint": f"/{answer.endpoint}",
            "parameters": Jsonb(dict(answer.parameters)),
            "status": answer.status,
            "headers": Jsonb(dict(answer.headers)),
            "body": Jsonb(envelope.told),
            "errors": Jsonb(dict(envelope.errors)),
            "results": envelope.results,
            "request_hash": _request_hash(answer),
            "body_hash": hashlib.sha256(answer.body).digest(),
            "run": run,
            "leagues": None if leagues is None else sorted(leagues),
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    return Kept(*row)


def _request_hash(answer: Answer) -> bytes:
    question = json.dumps([answer.endpoint, sorted(answer.parameters.items())])
    return hashlib.sha256(question.encode()).digest()
