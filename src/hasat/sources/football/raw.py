"""Answers kept as they came, in raw.api_responses: what everything else can be rebuilt from."""

import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from hasat.sources.football.envelope import Envelope
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_AT_ONCE = 4


@dataclass(frozen=True)
class Answer:
    """One answer: to which question, and every byte of it."""

    endpoint: str
    parameters: Mapping[str, str]
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Told(NamedTuple):
    """A stored response: when it last came, which leagues it let into CORE, which matches left."""

    order: int
    endpoint: str
    parameters: dict[str, str]
    leagues: list[int] | None
    vanished: list[int]
    at: datetime
    body: str


async def keep(
    conn: AsyncConnection[Any],
    answer: Answer,
    envelope: Envelope,
    *,
    run: int | None,
    leagues: Collection[int] | None = None,
    vanished: Collection[int] = (),
) -> None:
    """Write an answer down, in the transaction of whoever uses it.

    `leagues` are those that are let into CORE with it: RAW alone has all that were told.
    `vanished` are the matches that it removes from CORE.
    """
    await conn.execute("SELECT raw.ensure_month(clock_timestamp())")
    await conn.execute(
        load_query(_PACKAGE, "keep_answer"),
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
            "vanished": sorted(vanished) or None,
        },
    )


async def newest_first(conn: AsyncConnection[Any]) -> AsyncGenerator[Told, None]:
    """The answers in the database, in the order in which they last came, turned round."""
    async with conn.cursor("newest_answers") as cursor:
        cursor.itersize = _AT_ONCE
        await cursor.execute(load_query(_PACKAGE, "newest_answers"))
        async for row in cursor:
            yield Told(*row)


def _request_hash(answer: Answer) -> bytes:
    question = json.dumps([answer.endpoint, sorted(answer.parameters.items())])
    return hashlib.sha256(question.encode()).digest()
