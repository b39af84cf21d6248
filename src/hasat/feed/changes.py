"""Read the feed: changes after a cursor or in a window of time, and the history of a record.

Every response comes from one statement, so it is one snapshot: head, floor and changes agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row, dict_row

from hasat.clock import local_time
from hasat.errors import GoneError, UnavailableError, UsageError
from hasat.feed.cursor import Cursor, Head
from hasat.feed.dataset import Dataset
from hasat.messages import Message, msg, template
from hasat.store.queries import load_query

Kind = Literal["added", "modified", "removed"]
KINDS: dict[int, Kind] = {1: "added", 2: "modified", 3: "removed"}


class Change(NamedTuple):
    """One added, modified or removed record."""

    seq: int
    kind: Kind
    key: str
    body: Any
    before: Any
    changed_at: datetime
    version: int

    @property
    def fields(self) -> list[str]:
        """Return the top-level fields that a modification changed."""
        if not (isinstance(self.body, dict) and isinstance(self.before, dict)):
            return []
        names = self.body.keys() | self.before.keys()
        return sorted(n for n in names if self.body.get(n) != self.before.get(n))


def publish_change(dataset: Dataset, change: Change) -> dict[str, Any]:
    """Return a change as the feed publishes it."""
    return {
        "seq": change.seq,
        "changeType": change.kind,
        "changedAt": format_change_time(change.changed_at),
        **dataset.change_fields(change.key, change.body),
    }


# The changes of a run share one time.
format_change_time = lru_cache(maxsize=64)(local_time)


@dataclass(frozen=True)
class Page:
    """Changes after a cursor, and the cursor to continue from."""

    changes: Sequence[Change]
    next: Cursor
    epoch: UUID
    head: int
    floor: int
    committed_at: datetime

    @property
    def up_to_date(self) -> bool:
        return self.next.seq == self.head


@dataclass(frozen=True)
class Span:
    """One page of the changes committed after one moment and up to another."""

    changes: Sequence[Change]
    total: int
    until: datetime
    """The commit time up to which this page and those before it are complete."""
    window_end: datetime
    """The commit time up to which all pages together are complete."""
    committed_at: datetime


@dataclass(frozen=True)
class AsOf:
    """A record's body at some moment, None if it was not there, and the newest commit."""

    body: Any
    committed_at: datetime


class ExpiredError(GoneError):
    """The requested changes have expired, or the cursor does not belong to this feed."""

    code = "feed-expired"
    title = template("The feed no longer reaches back that far")

    def __init__(
        self, dataset: str, why: Message | str, *, remedy: Message | str | None = None
    ) -> None:
        start_over = msg(
            "Start over from /api/v1/{dataset}/archives/latest and continue from its cursor.",
            dataset=dataset,
        )
        super().__init__(why, remedy=remedy or start_over)
        self.dataset = dataset
        self.starts_over = remedy is None
        """Whether the consumer must start over from an archive."""


async def changes_after(
    conn: AsyncConnection[Any],
    dataset: str,
    cursor: Cursor | None,
    *,
    limit: int,
    keys: Sequence[str] | None = None,
    before: bool = True,
    as_text: bool = False,
) -> Page:
    """Return the changes after a cursor or the floor; with `keys`, only of those records.

    Without `before`, the state before each change is not read; with `as_text`, bodies are JSON
    texts.
    """
    name = "changes_after" if keys is None else "changes_of"
    values = {
        "dataset": dataset,
        "after": None if cursor is None else cursor.seq,
        "limit": limit,
        "before": before,
        "keys": None if keys is None else list(keys),
    }
    query = sql.SQL(load_query("hasat.feed", name)).format(
        form=sql.SQL("text" if as_text else "jsonb")
    )
    rows = await (await conn.execute(query, values)).fetchall()
    tops = [row for row in rows if row[0] is not None]
    if not tops or tops[0][2] is None:
        raise no_data_error(dataset)
    epoch, floor, committed_at, head, *_ = tops[0]
    if cursor is not None:
        _check(cursor, dataset, epoch, head, floor)
    changes = sorted(
        Change(seq, KINDS[kind], *rest) for top, _, _, seq, kind, *rest in rows if top is None
    )
    # A filtered page that is not full covers everything up to the head.
    seen = changes[-1].seq if len(changes) == limit or (changes and keys is None) else head
    return Page(changes, Cursor(dataset, epoch, seen), epoch, head, floor, committed_at)


async def changes_between(
    conn: AsyncConnection[Any],
    dataset: str,
    since: datetime,
    until: datetime | None,
    *,
    page: int,
    size: int,
    keys: Sequence[str] | None = None,
) -> Span:
    """Return one page of the original's time protocol; with `keys`, only those records' changes.

    Pages are ordered by sequence number, so a commit between two of them only adds to the end.
    """
    values = {
        "dataset": dataset,
        "since": since,
        "until": until,
        "skip": (page - 1) * size,
        "size": size,
        "keys": None if keys is None else list(keys),
    }
    query = "changes_between" if keys is None else "changes_of_between"
    rows = await _rows(conn, query, values)
    first = _filled(dataset, rows)
    if first["floor_at"] is not None and since < first["floor_at"]:
        raise ExpiredError(
            dataset,
            msg("Changes before {floor_at} have expired.", floor_at=first["floor_at"].isoformat()),
        )
    return Span(
        _changes(rows), first["total"], first["until"], first["window_end"], first["committed_at"]
    )


async def head_of(conn: AsyncConnection[Any], dataset: str) -> Head:
    """Return the head of a dataset."""
    async with conn.cursor(row_factory=class_row(Head)) as cursor:
        await cursor.execute(load_query("hasat.feed", "head"), {"dataset": dataset})
        head = await cursor.fetchone()
    if head is None or head.committed_at is None:
        raise no_data_error(dataset)
    return head


async def is_filled(conn: AsyncConnection[Any], dataset: str) -> bool:
    """Return whether the dataset has a committed run."""
    cursor = await conn.execute(
        "SELECT FROM feed.head WHERE dataset = %s AND committed_at IS NOT NULL", [dataset]
    )
    return cursor.rowcount > 0


async def history(conn: AsyncConnection[Any], dataset: Dataset, key: str) -> Sequence[Change]:
    """Return the changes of one record, oldest first, as far back as the history reaches.

    Where a rebuild started a new epoch, a record that differs has a change with the last sequence
    number before it.
    """
    query = sql.SQL(load_query("hasat.feed", "history")).format(table=dataset.table)
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, {"dataset": dataset.name, "key": key})
        return [_change(row) for row in await cursor.fetchall()]


async def record_exists(conn: AsyncConnection[Any], dataset: Dataset, key: str) -> bool:
    """Return whether the dataset has a record with that key now."""
    query = sql.SQL("SELECT FROM {} WHERE key = %s").format(dataset.table)
    return (await conn.execute(query, [key])).rowcount > 0


async def record_as_of(
    conn: AsyncConnection[Any], dataset: Dataset, key: str, at: datetime
) -> AsOf:
    """Return one record as of a moment; raise if what it was then is not known."""
    query = sql.SQL(load_query("hasat.feed", "record_as_of")).format(table=dataset.table)
    values = {"dataset": dataset.name, "key": key, "at": at}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, values)
        row = _filled(dataset.name, await cursor.fetchall())
    if at > row["now"]:
        raise UsageError(
            msg("{at} is in the future.", at=local_time(at)),
            remedy=msg("The time of this server is {now}.", now=local_time(row["now"])),
        )
    if reason := _why_unknown(dataset.name, at, row):
        raise ExpiredError(dataset.name, reason, remedy=msg("Request a later time."))
    return AsOf(row["body"], row["committed_at"])


def _why_unknown(dataset: str, at: datetime, row: Mapping[str, Any]) -> Message | None:
    if at < row["first_at"]:
        first = local_time(row["first_at"])
        return msg(
            "The first version of {dataset} is of {first}; nothing is known of the time before.",
            dataset=dataset,
            first=first,
        )
    if row["unknown_until"] is None:
        return None
    until = local_time(row["unknown_until"])
    if row["unknown_after"] is None:
        return msg("There is no history before {known_from}.", known_from=until)
    return msg(
        "What {dataset} was between {after} and {until} was lost when a backup was restored.",
        dataset=dataset,
        after=local_time(row["unknown_after"]),
        until=until,
    )


async def expire_history(conn: AsyncConnection[Any], retention: timedelta) -> int:
    """Delete the states that ended before the retention, and return their number."""
    cursor = await conn.execute(
        load_query("hasat.feed", "expire_history"), {"retention": retention}
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


def _check(cursor: Cursor, dataset: str, epoch: UUID, head: int, floor: int) -> None:
    if cursor.dataset != dataset:
        raise ExpiredError(
            dataset, msg("This cursor belongs to {dataset!r}.", dataset=cursor.dataset)
        )
    if cursor.epoch != epoch:
        raise ExpiredError(dataset, msg("This cursor is from before the mirror was rebuilt."))
    if cursor.seq > head:
        raise ExpiredError(dataset, msg("This cursor is ahead of the feed."))
    if cursor.seq < floor:
        raise ExpiredError(dataset, msg("Changes up to {floor} have expired.", floor=floor))


def _filled(dataset: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not rows or rows[0]["committed_at"] is None:
        raise no_data_error(dataset)
    return rows[0]


def no_data_error(dataset: str) -> UnavailableError:
    return UnavailableError(
        msg("{dataset} has no data yet.", dataset=dataset),
        remedy=msg("Try again after the first run."),
    )


def _changes(rows: Sequence[dict[str, Any]]) -> list[Change]:
    return [_change(row) for row in rows if row["seq"] is not None]


def _change(row: Mapping[str, Any]) -> Change:
    return Change(
        row["seq"],
        KINDS[row["kind"]],
        row["key"],
        row["body"],
        row["before"],
        row["changed_at"],
        row["version"],
    )


async def _rows(
    conn: AsyncConnection[Any], name: str, values: dict[str, Any]
) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        query = load_query("hasat.feed", name)
        for part in ("window", "page"):
            query = query.replace(f"{{{part}}}", load_query("hasat.feed", f"commit_{part}"))
        await cursor.execute(query, values)
        return await cursor.fetchall()
