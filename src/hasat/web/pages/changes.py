"""Changes: the newest changes of a dataset, and the history of one record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from hasat.errors import NotFoundError
from hasat.feed.changes import KINDS, Change, history
from hasat.feed.dataset import Dataset
from hasat.http.routes import check_dataset_access, dumps
from hasat.messages import msg
from hasat.pages import Page, PageContext, PageRequest
from hasat.store.queries import load_query

_PAGE_SIZE = 50
_MAX_SIMILAR = 20


@dataclass(frozen=True)
class Field:
    """A field before and after a change; None where it was missing."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ChangeRow:
    """One change with the fields it affected."""

    seq: int
    kind: str
    key: str
    changed_at: datetime
    fields: Sequence[Field]


@dataclass(frozen=True)
class DatasetName:
    """A dataset that can be selected."""

    name: str
    source: str


@dataclass(frozen=True)
class Changes:
    """The data of the page."""

    datasets: Sequence[DatasetName]
    dataset: str
    records: int | None
    head: int | None
    floor: int | None
    committed_at: datetime | None
    changes: Sequence[ChangeRow]
    older_than: int | None
    """The sequence number from which the next page continues."""


@dataclass(frozen=True)
class Record:
    """One record with its stored history."""

    dataset: str
    key: str
    body: Any
    """None if the record does not exist now."""
    history: Sequence[ChangeRow]
    similar: Sequence[str]
    """Keys with the same beginning, if no record has this key."""


async def changes(request: PageRequest) -> Changes:
    """Load the newest changes of a dataset, or those before a sequence number."""
    context = request.context
    names = [
        DatasetName(one.name, source.name)
        for source in context.sources
        for one in source.datasets
        if request.may_read(one.name)
    ]
    chosen = (
        request.text("dataset")
        or await _latest_dataset(context, [one.name for one in names])
        or (names[0].name if names else "")
    )
    if not names:
        return Changes([], "", None, None, None, None, [], None)
    dataset = _readable_dataset(request, chosen)
    values = {"dataset": dataset.name, "before": request.number("before"), "limit": _PAGE_SIZE + 1}
    async with context.store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.web", "newest_changes"), values)
        rows = await cursor.fetchall()
    head = rows[0] if rows else None
    found = [_sort_fields(_row(_change(row))) for row in rows if row["seq"] is not None]
    shown = found[:_PAGE_SIZE]
    return Changes(
        datasets=names,
        dataset=dataset.name,
        records=head["records"] if head else None,
        head=head["head"] if head else None,
        floor=head["floor"] if head else None,
        committed_at=head["committed_at"] if head else None,
        changes=shown,
        older_than=shown[-1].seq if len(found) > _PAGE_SIZE else None,
    )


async def record(request: PageRequest) -> Record:
    """Load one record by its key."""
    dataset, key = _readable_dataset(request, request.text("dataset")), request.text("key")
    async with request.store.connection() as conn:
        found = await conn.execute(
            sql.SQL("SELECT body FROM {} WHERE key = %s").format(dataset.table), [key]
        )
        row = await found.fetchone()
        found_history = await history(conn, dataset, key)
        similar: list[str] = []
        if row is None and not found_history and key:
            pattern = key.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            names = await conn.execute(
                sql.SQL("SELECT key FROM {} WHERE key LIKE %s ORDER BY key LIMIT %s").format(
                    dataset.table
                ),
                [pattern, _MAX_SIMILAR],
            )
            similar = [one for (one,) in await names.fetchall()]
    rows = [_row(change) for change in reversed(found_history)]
    return Record(dataset.name, key, row[0] if row else None, rows, similar)


def find_dataset(context: PageContext, name: str) -> Dataset:
    """Return the dataset of a name; the NotFoundError lists those that exist."""
    known = {one.name: one for source in context.sources for one in source.datasets}
    if name not in known:
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=name),
            remedy=msg("Known datasets: {known}.", known=", ".join(known)),
        )
    return known[name]


def _readable_dataset(request: PageRequest, name: str) -> Dataset:
    """Return a dataset that the caller may read."""
    check_dataset_access(request.caller, name)
    return find_dataset(request.context, name)


async def _latest_dataset(context: PageContext, names: Sequence[str]) -> str | None:
    """Return that of the datasets with the latest commit."""
    async with context.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT dataset FROM feed.head WHERE seq > 0 AND dataset = ANY (%s)"
            " ORDER BY committed_at DESC, seq DESC LIMIT 1",
            [list(names)],
        )
        row = await cursor.fetchone()
    return row[0] if row else None


def _change(row: dict[str, Any]) -> Change:
    return Change(
        row["seq"],
        KINDS[row["kind"]],
        row["key"],
        row["body"],
        row["before"],
        row["changed_at"],
        row["version"],
    )


def _row(change: Change) -> ChangeRow:
    return ChangeRow(
        change.seq,
        change.kind,
        change.key,
        change.changed_at,
        changed_fields(change.before, change.body),
    )


def _sort_fields(row: ChangeRow) -> ChangeRow:
    """Put texts before numbers: a list has space for a few fields of a whole record only."""
    if row.kind == "modified":
        return row
    return replace(row, fields=sorted(row.fields, key=_is_not_text))


def _is_not_text(field: Field) -> bool:
    value = field.after or field.before or ""
    return not value or value[0] in "[{-0123456789"


def changed_fields(before: Any, after: Any) -> Sequence[Field]:
    """Compare two bodies field by field, down to the smallest nested part that differs."""
    if not (_has_parts(before) and _has_parts(after)):
        return [_whole("", before, after)]
    was, now = before or {}, after or {}
    found: list[Field] = []
    for name in sorted(
        was.keys() | now.keys(), key=lambda one: _rank(one, now.get(one, was.get(one)))
    ):
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if _has_parts(old) and _has_parts(new) and (old or new):
            parts = changed_fields(old, new)
            found += [Field(f"{name}.{one.name}", one.before, one.after) for one in parts]
        elif isinstance(old, list) and isinstance(new, list):
            removed, added = _without(old, new), _without(new, old)
            # Only the order or a duplicate differs: show the whole list.
            found.append(
                Field(name, removed, added) if removed or added else _whole(name, old, new)
            )
        else:
            found.append(_whole(name, old, new))
    return found


def _has_parts(value: Any) -> bool:
    """Whether a value is compared by its parts; a missing value has none."""
    return value is None or isinstance(value, dict)


def _rank(name: str, value: Any) -> tuple[bool, bool, int, str]:
    """Sort significant fields first: attributes before geometry, short names before long ones."""
    return name != "properties", isinstance(value, list), len(name), name


def _whole(name: str, before: Any, after: Any) -> Field:
    return Field(name, _text(before), _text(after))


def _without(some: list[Any], others: list[Any]) -> str | None:
    """Return the elements that the other list does not have."""
    return " ".join(_text(one) or "null" for one in some if one not in others) or None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


PAGES = (
    Page("/changes", "changes", changes, "changes", datasets=()),
    Page("/changes/record", "record", record, "changes", datasets=()),
)
