"""Answers kept as they came, in raw.api_responses: what everything else can be rebuilt from."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import AsyncConnection, sql
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from hasat.errors import HasatError
from hasat.feed.archive.storage import Storage, storage_of
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.sources.football.datasets import SOURCE
from hasat.sources.football.ingest.envelope import Envelope
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from hasat.sources.football.ingest.raw_files import MonthFile

if TYPE_CHECKING:
    pass


_PACKAGE = "hasat.sources.football"
_AT_ONCE = 4
_LOCK = 8370142693


@dataclass(frozen=True)
class ApiResponse:
    """One answer: to which question, and every byte of it."""

    endpoint: str
    parameters: Mapping[str, str]
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class StoredResponse(NamedTuple):
    """A stored response: when it last came, which leagues it let into CORE, which matches left."""

    order: int
    endpoint: str
    parameters: dict[str, str]
    leagues: list[int] | None
    vanished: list[int]
    at: datetime
    body: str


async def store_response(
    conn: AsyncConnection[Any],
    answer: ApiResponse,
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


async def iter_stored(conn: AsyncConnection[Any]) -> AsyncGenerator[StoredResponse, None]:
    """The answers in the database, in the order in which they last came, turned round."""
    async with conn.cursor("newest_answers") as cursor:
        cursor.itersize = _AT_ONCE
        await cursor.execute(load_query(_PACKAGE, "newest_answers"))
        async for row in cursor:
            yield StoredResponse(*row)


def _request_hash(answer: ApiResponse) -> bytes:
    question = json.dumps([answer.endpoint, sorted(answer.parameters.items())])
    return hashlib.sha256(question.encode()).digest()


async def archive_months(context: RunContext) -> Outcome:
    """Move every month that is old enough; one at a time, each on its own."""
    place = storage_of(context.settings)
    months: list[str] = []
    answers = 0
    async with context.store.connection() as alone:
        cursor = await alone.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if await cursor.fetchone() != (True,):
            return Outcome("skipped", message=msg("Another process moves old months already."))
        due = await _old_months(alone, context.settings.football.raw_retention_days)
        for number, month in enumerate(due):
            await context.progress(number, len(due), f"{month:%Y-%m}")
            moved = await _move(context, place, month)
            if moved is not None:
                months.append(f"{month:%Y-%m}")
                answers += moved.answers
    return Outcome("done" if months else "nothing", answers, {"months": months})


async def _old_months(conn: AsyncConnection[Any], days: int) -> list[date]:
    cursor = await conn.execute(load_query(_PACKAGE, "old_months"), {"days": days})
    return [month for (month,) in await cursor.fetchall()]


async def _move(context: RunContext, place: Storage, month: date) -> "MonthFile | None":
    """The month in a file and no longer in the database; None if it could not be let go yet."""
    # Where nothing is archived, nobody waits for Parquet to be loaded.
    from hasat.sources.football.ingest.raw_files import write_month

    draft_path = f"{SOURCE}_raw/api_responses_{month:%Y_%m}.parquet"
    draft = place.draft(draft_path)
    file = await asyncio.to_thread(write_month, context.store.url, month, draft)
    # Named by what is in it: whatever is tried again later cannot replace another file.
    path = draft_path.replace(".parquet", f"_{file.last_order}.parquet")
    await asyncio.to_thread(draft.replace, place.draft(path))
    if file.answers:
        await place.publish(path)
    try:
        async with context.store.connection() as conn:
            await _let_go(conn, month, path, file)
    except (LockNotAvailable, _ChangedError) as error:
        context.log.info(
            "a month is still in use; it is moved later", month=str(month), why=str(error)
        )
        with suppress(HasatError):
            await place.remove(path)
        return None
    if not file.answers:
        await place.remove(path)
    return file


class _ChangedError(Exception):
    """An answer of the month came again while its file was written."""


async def _let_go(conn: AsyncConnection[Any], month: date, path: str, file: "MonthFile") -> None:
    """Drop the partition, if it is still what is in the file, and remember where that is."""
    await conn.execute("SET LOCAL lock_timeout = '5s'")
    await conn.execute("LOCK TABLE raw.api_responses IN ACCESS EXCLUSIVE MODE")
    partition = sql.Identifier("raw", f"api_responses_{month:%Y_%m}")
    cursor = await conn.execute(
        sql.SQL("SELECT count(*), coalesce(max(seen_order), 0) FROM {}").format(partition)
    )
    if await cursor.fetchone() != (file.answers, file.last_order):
        raise _ChangedError("answers of it came meanwhile")
    if file.answers:
        await conn.execute(
            load_query(_PACKAGE, "note_archive"), {"path": path, "month": month, **vars(file)}
        )
    await conn.execute(sql.SQL("DROP TABLE {}").format(partition))
