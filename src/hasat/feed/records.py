"""Read the records of a dataset: lists by declared columns, single records and typed values.

A list is paged by the value it is sorted by and the key, not by number: a record that keeps both is
in the pages exactly once, whatever runs commit between two of them.
"""

import binascii
import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import AsyncConnection, sql

from hasat.clock import parse_local_time
from hasat.errors import UsageError
from hasat.feed.columns import BUILT_IN, KEY, POSTGRES_TYPE, Column
from hasat.feed.dataset import Dataset
from hasat.messages import msg
from hasat.settings.values import did_you_mean
from hasat.store.queries import load_query

Comparison = Literal["", "gte", "lte", "prefix"]
_MAX_INTEGER = 2**63
_CHECK = 4
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


class Row(NamedTuple):
    """A record as stored: the body is JSON text, `values` are those of the declared columns."""

    key: str
    body: str
    seq: int
    first_seen_at: datetime
    changed_at: datetime
    position: str | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Filter:
    """A condition on one column."""

    column: Column
    comparison: Comparison
    value: Any


@dataclass(frozen=True)
class Selection:
    """Which records a list has, and in which order."""

    filters: tuple[Filter, ...] = ()
    sort: Column = KEY
    descending: bool = False

    def fingerprint(self, dataset: Dataset) -> int:
        """Return a number that differs for lists whose pages do not fit together."""
        filters = sorted((f.column.name, f.comparison, str(f.value)) for f in self.filters)
        text = repr((dataset.name, filters, self.sort.name, self.descending))
        return binascii.crc32(text.encode())


@dataclass(frozen=True)
class Place:
    """A position in a list: after the record with this key and sort value (None: null)."""

    value: str | None
    key: str

    def cursor(self, dataset: Dataset, selection: Selection) -> str:
        payload = json.dumps([selection.fingerprint(dataset), self.value, self.key]).encode()
        check = binascii.crc32(payload).to_bytes(_CHECK, "big")
        return urlsafe_b64encode(check + payload).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str, dataset: Dataset, selection: Selection) -> "Place":
        """Parse the cursor of a list; reject that of another list."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            if binascii.crc32(raw[_CHECK:]).to_bytes(_CHECK, "big") != raw[:_CHECK]:
                raise ValueError(text)
            fingerprint, value, key = json.loads(raw[_CHECK:])
            if not (_is_text(key) and (value is None or _is_text(value))):
                raise ValueError(text)
        except (ValueError, TypeError) as error:
            raise _foreign_cursor() from error
        if fingerprint != selection.fingerprint(dataset):
            raise _foreign_cursor()
        return cls(value, key)


def _foreign_cursor() -> UsageError:
    return UsageError(
        msg("`after` is not a cursor of this list."),
        remedy=msg("Use `next` of an earlier page unchanged, with the same filters and sort."),
    )


def filter_names(dataset: Dataset) -> dict[str, tuple[Column, Comparison]]:
    """Return the parameters that a list can be filtered by."""
    names: dict[str, tuple[Column, Comparison]] = {}
    for column in (*BUILT_IN, *dataset.columns):
        names[column.name] = column, ""
        if column.type != "boolean":
            names[f"{column.name}.gte"] = column, "gte"
            names[f"{column.name}.lte"] = column, "lte"
        if column.type == "text":
            names[f"{column.name}.prefix"] = column, "prefix"
    return names


def parse_selection(
    dataset: Dataset, conditions: Mapping[str, str], sort: str | None = None
) -> Selection:
    """Return the selection of a request; raise UsageError for what the dataset does not have."""
    known = filter_names(dataset)
    filters = []
    for name, text in conditions.items():
        if name not in known:
            raise UsageError(
                msg(
                    "{dataset} cannot be filtered by {name!r}{hint}",
                    dataset=dataset.name,
                    name=name[:60],
                    hint=did_you_mean(name, sorted(known), 0.6),
                ),
                remedy=msg("Supported filters: {names}.", names=", ".join(sorted(known))),
            )
        column, comparison = known[name]
        filters.append(Filter(column, comparison, _parse_value(name, column, text)))
    column = KEY
    if sort is not None:
        columns = {column.name: column for column in (*BUILT_IN, *dataset.columns)}
        if (wanted := sort.removeprefix("-")) not in columns:
            raise UsageError(
                msg(
                    "{dataset} cannot be sorted by {name!r}{hint}",
                    dataset=dataset.name,
                    name=wanted[:60],
                    hint=did_you_mean(wanted, sorted(columns), 0.6),
                ),
                remedy=msg(
                    "Use one of {names}; a minus sign in front sorts from the last.",
                    names=", ".join(sorted(columns)),
                ),
            )
        column = columns[wanted]
    return Selection(tuple(filters), column, sort is not None and sort.startswith("-"))


def _parse_value(name: str, column: Column, text: str) -> Any:
    try:
        if column.type in ("integer", "number") and not _NUMBER.fullmatch(text):
            raise ValueError(text)
        match column.type:
            case "integer":
                number = int(text)
                if not -_MAX_INTEGER <= number < _MAX_INTEGER:
                    raise ValueError(text)
                return number
            case "number":
                if not math.isfinite(value := float(text)):
                    raise ValueError(text)
                return value
            case "boolean":
                return {"true": True, "false": False}[text.lower()]
            case "date":
                return date.fromisoformat(text)
            case "timestamp":
                return parse_local_time(text)
            case _:
                if not _is_text(text):
                    raise ValueError(text)
                return text
    except (ValueError, KeyError) as error:
        raise UsageError(
            msg(
                "`{name}`: {text!r} is not of the type {type}.",
                name=name,
                text=text[:60],
                type=column.type,
            ),
            remedy=msg(
                "Write numbers as in 12.5, dates and times as in 2026-02-19 and "
                "2026-02-19T10:00:00, and true or false."
            ),
        ) from error


def _is_text(value: object) -> bool:
    """Return whether PostgreSQL can store a value as text."""
    if not isinstance(value, str) or "\0" in value:
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


async def list_records(
    conn: AsyncConnection[Any],
    dataset: Dataset,
    selection: Selection,
    *,
    limit: int,
    after: Place | None = None,
) -> list[Row]:
    """Return a page of records; those without a value to sort by are last in either order.

    Run it in one snapshot: values and nulls are read one after the other.
    """
    try:
        return await _list_pages(conn, dataset, selection, limit, after)
    except psycopg.DataError as error:
        if after is None:
            raise
        # Nobody got this cursor from us: its value is not of the column's type.
        raise _foreign_cursor() from error


async def _list_pages(
    conn: AsyncConnection[Any],
    dataset: Dataset,
    selection: Selection,
    limit: int,
    after: Place | None,
) -> list[Row]:
    conditions, values = _conditions(selection.filters)
    order = selection.sort.sorted("m")
    direction = sql.SQL("DESC" if selection.descending else "ASC")
    if selection.sort is KEY:
        if after is not None:
            operator = sql.SQL("<" if selection.descending else ">")
            conditions = [*conditions, sql.SQL("m.key {} %(after_key)s").format(operator)]
            values |= {"after_key": after.key}
        ordered = sql.SQL("m.key {}").format(direction)
        return await _page(conn, dataset, conditions, values, order, ordered, limit)
    rows: list[Row] = []
    if after is None or after.value is not None:
        present = [*conditions, sql.SQL("{} IS NOT NULL").format(order)]
        if after is not None:
            values |= {"after": after.value, "after_key": after.key}
            present.append(_beyond(selection, order))
        ordered = sql.SQL("{} {}, m.key").format(order, direction)
        rows = await _page(conn, dataset, present, values, order, ordered, limit)
    if len(rows) < limit:
        absent = [*conditions, sql.SQL("{} IS NULL").format(order)]
        if after is not None and after.value is None:
            absent.append(sql.SQL("m.key > %(after_key)s"))
            values |= {"after_key": after.key}
        ordered = sql.SQL("{}").format(sql.SQL("m.key"))
        rows += await _page(conn, dataset, absent, values, order, ordered, limit - len(rows))
    return rows


def _beyond(selection: Selection, order: sql.Composable) -> sql.Composed:
    """Return the condition for records after a place; its first part can use an index."""
    return sql.SQL(
        "{value} {inclusive} {at} AND ({value} {exclusive} {at} OR m.key > %(after_key)s)"
    ).format(
        value=order,
        at=sql.SQL("%(after)s::{}").format(sql.SQL(POSTGRES_TYPE[selection.sort.type])),
        inclusive=sql.SQL("<=" if selection.descending else ">="),
        exclusive=sql.SQL("<" if selection.descending else ">"),
    )


async def _page(
    conn: AsyncConnection[Any],
    dataset: Dataset,
    conditions: Sequence[sql.Composable],
    values: Mapping[str, Any],
    position: sql.Composable,
    order: sql.Composable,
    limit: int,
) -> list[Row]:
    query = sql.SQL(load_query("hasat.feed", "list_records")).format(
        table=dataset.table,
        position=position,
        values=_projected([column.read("m") for column in dataset.columns]),
        where=_all_of(conditions),
        order=order,
    )
    cursor = await conn.execute(query, {**values, "limit": limit})
    return [Row._make((*row[:6], row[6:])) for row in await cursor.fetchall()]


async def count_records(conn: AsyncConnection[Any], dataset: Dataset, selection: Selection) -> int:
    """Return the number of records of a list."""
    conditions, values = _conditions(selection.filters)
    query = sql.SQL(load_query("hasat.feed", "count_records")).format(
        table=dataset.table, where=_all_of(conditions)
    )
    row = await (await conn.execute(query, values)).fetchone()
    return 0 if row is None else int(row[0])


async def find_record(conn: AsyncConnection[Any], dataset: Dataset, key: str) -> Row | None:
    """Return the current record with that key."""
    rows = await list_records(conn, dataset, Selection((Filter(KEY, "", key),)), limit=1)
    return rows[0] if rows else None


async def project_bodies(
    conn: AsyncConnection[Any], dataset: Dataset, records: Sequence[tuple[str, str | None]]
) -> list[tuple[Any, ...]]:
    """Return the values of the declared columns for keys and bodies that are not in the table."""
    if not dataset.columns:
        return [() for _ in records]
    query = sql.SQL(load_query("hasat.feed", "project_bodies")).format(
        values=_projected([column.project("m") for column in dataset.columns])
    )
    values = {"keys": [key for key, _ in records], "bodies": [body for _, body in records]}
    cursor = await conn.execute(query, values)
    return [row[1:] for row in await cursor.fetchall()]


def match_body(filters: Sequence[Filter]) -> tuple[sql.Composable, dict[str, Any]]:
    """Return the condition that a key and a body (of a row m) fulfil, and its values."""
    conditions = []
    values: dict[str, Any] = {}
    for number, one in enumerate(filters):
        parameter = _parameter(number, one, values)
        value = sql.SQL("m.key") if one.column is KEY else one.column.project("m")
        if one.column.type == "text":
            value = sql.SQL('({} COLLATE "C")').format(value)
        form = {
            "prefix": "starts_with({}, {})",
            "gte": "{} >= {}",
            "lte": "{} <= {}",
            "": "{} = {}",
        }[one.comparison]
        conditions.append(sql.SQL(form).format(value, parameter))
    return _all_of(conditions), values


def _parameter(number: int, one: Filter, values: dict[str, Any]) -> sql.Composable:
    values[f"value_{number}"] = one.value
    kind = POSTGRES_TYPE[one.column.type]
    return sql.SQL("%({})s::{}").format(sql.SQL(f"value_{number}"), sql.SQL(kind))


def _conditions(filters: Sequence[Filter]) -> tuple[list[sql.Composable], dict[str, Any]]:
    conditions: list[sql.Composable] = []
    values: dict[str, Any] = {}
    for number, one in enumerate(filters):
        parameter = _parameter(number, one, values)
        sorted_value, value = one.column.sorted("m"), one.column.read("m")
        match one.comparison:
            case "prefix":
                form = "{sorted} ^@ left({at}, 500) AND starts_with({value}, {at})"
            case "gte":
                form = "{sorted} >= {at}"
            case "lte":
                form = "{sorted} <= {at}"
            case _ if one.column.type == "text" and not one.column.stored:
                # The index has only the beginning of a text.
                form = "{sorted} = left({at}, 500) AND {value} = {at}"
            case _:
                form = "{value} = {at}"
        conditions.append(sql.SQL(form).format(sorted=sorted_value, value=value, at=parameter))
    return conditions, values


def _all_of(conditions: Sequence[sql.Composable]) -> sql.Composable:
    if not conditions:
        return sql.SQL("true")
    return sql.SQL(" AND ").join(sql.SQL("({})").format(one) for one in conditions)


def _projected(values: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("").join(sql.SQL(", {}").format(value) for value in values)
