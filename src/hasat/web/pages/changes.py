"""Changes: the newest of any dataset as they come, and the story of one record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from hasat.errors import NotFoundError
from hasat.feed.changes import KINDS, Change, history
from hasat.feed.dataset import Dataset
from hasat.http.routes import dumps
from hasat.messages import msg
from hasat.store.queries import load_query
from hasat.web.page import Asked, House, Page

_ON_A_PAGE = 50
_SUGGESTED = 20


@dataclass(frozen=True)
class Field:
    """A field before and after a change; None where it was not there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ChangeLine:
    """One change with the fields that it touched."""

    seq: int
    kind: str
    key: str
    changed_at: datetime
    fields: Sequence[Field]


@dataclass(frozen=True)
class DatasetName:
    """A dataset that can be chosen."""

    name: str
    source: str


@dataclass(frozen=True)
class Changes:
    """All of the page."""

    datasets: Sequence[DatasetName]
    dataset: str
    records: int | None
    head: int | None
    floor: int | None
    committed_at: datetime | None
    changes: Sequence[ChangeLine]
    older_than: int | None
    """Where the next page of older changes begins."""


@dataclass(frozen=True)
class Record:
    """One record as it is, and everything still known of how it became that."""

    dataset: str
    key: str
    body: Any
    """None if it is not there now."""
    history: Sequence[ChangeLine]
    alike: Sequence[str]
    """Keys that begin alike, if there is none of this name."""


async def changes(asked: Asked) -> Changes:
    """The newest changes of a dataset, or those before a number."""
    house = asked.house
    names = [
        DatasetName(one.name, source.name) for source in house.sources for one in source.datasets
    ]
    chosen = asked.text("dataset") or await _liveliest(house) or (names[0].name if names else "")
    if not names:
        return Changes([], "", None, None, None, None, [], None)
    dataset = dataset_named(house, chosen)
    values = {"dataset": dataset.name, "before": asked.number("before"), "limit": _ON_A_PAGE + 1}
    async with house.store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.web", "newest_changes"), values)
        rows = await cursor.fetchall()
    head = rows[0] if rows else None
    found = [_brief(_line(_change(row))) for row in rows if row["seq"] is not None]
    shown = found[:_ON_A_PAGE]
    return Changes(
        datasets=names,
        dataset=dataset.name,
        records=head["records"] if head else None,
        head=head["head"] if head else None,
        floor=head["floor"] if head else None,
        committed_at=head["committed_at"] if head else None,
        changes=shown,
        older_than=shown[-1].seq if len(found) > _ON_A_PAGE else None,
    )


async def record(asked: Asked) -> Record:
    """One record by its key."""
    dataset, key = dataset_named(asked.house, asked.text("dataset")), asked.text("key")
    async with asked.store.connection() as conn:
        found = await conn.execute(
            sql.SQL("SELECT body FROM {} WHERE key = %s").format(dataset.table), [key]
        )
        row = await found.fetchone()
        told = await history(conn, dataset.name, key)
        alike: list[str] = []
        if row is None and not told and key:
            like = key.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            names = await conn.execute(
                sql.SQL("SELECT key FROM {} WHERE key LIKE %s ORDER BY key LIMIT %s").format(
                    dataset.table
                ),
                [like, _SUGGESTED],
            )
            alike = [one for (one,) in await names.fetchall()]
    lines = [_line(change) for change in reversed(told)]
    return Record(dataset.name, key, row[0] if row else None, lines, alike)


def dataset_named(house: House, name: str) -> Dataset:
    """The dataset of that name; NotFoundError says which there are."""
    known = {one.name: one for source in house.sources for one in source.datasets}
    if name not in known:
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=name),
            remedy=msg("There are: {known}.", known=", ".join(known)),
        )
    return known[name]


async def _liveliest(house: House) -> str | None:
    """The dataset that was committed last."""
    async with house.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT dataset FROM feed.head WHERE seq > 0"
            " ORDER BY committed_at DESC, seq DESC LIMIT 1"
        )
        row = await cursor.fetchone()
    known = {one.name for source in house.sources for one in source.datasets}
    return row[0] if row and row[0] in known else None


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


def _line(change: Change) -> ChangeLine:
    return ChangeLine(
        change.seq,
        change.kind,
        change.key,
        change.changed_at,
        fields_of(change.before, change.body),
    )


def _brief(line: ChangeLine) -> ChangeLine:
    """For a list, which has room for a few fields: of a whole record, texts before numbers."""
    if line.kind == "modified":
        return line
    return replace(line, fields=sorted(line.fields, key=_is_no_text))


def _is_no_text(field: Field) -> bool:
    value = field.after or field.before or ""
    return not value or value[0] in "[{-0123456789"


def fields_of(before: Any, after: Any) -> Sequence[Field]:
    """What differs, field by field; of nested ones the smallest part that differs."""
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
            parts = fields_of(old, new)
            found += [Field(f"{name}.{one.name}", one.before, one.after) for one in parts]
        elif isinstance(old, list) and isinstance(new, list):
            gone, come = _without(old, new), _without(new, old)
            # In another order, or one of two alike: shown whole.
            found.append(Field(name, gone, come) if gone or come else _whole(name, old, new))
        else:
            found.append(_whole(name, old, new))
    return found


def _has_parts(value: Any) -> bool:
    """Whether it is shown part by part; what is not there has none to show."""
    return value is None or isinstance(value, dict)


def _rank(name: str, value: Any) -> tuple[bool, bool, int, str]:
    """The telling ones first: what is said of a parcel before its shape, short before long."""
    return name != "properties", isinstance(value, list), len(name), name


def _whole(name: str, before: Any, after: Any) -> Field:
    return Field(name, _text(before), _text(after))


def _without(some: list[Any], others: list[Any]) -> str | None:
    """The elements that the others do not have."""
    return " ".join(_text(one) or "null" for one in some if one not in others) or None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


PAGES = (
    Page("/changes", "changes", changes, "changes"),
    Page("/changes/record", "record", record, "changes"),
)
