"""Records: the list of a dataset with its declared columns, filtered, sorted and downloaded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from psycopg import AsyncConnection

from hasat.errors import NotFoundError
from hasat.feed.columns import CHANGED_AT, KEY, Column, Type
from hasat.feed.dataset import Dataset
from hasat.feed.records import (
    Place,
    Row,
    Selection,
    count_records,
    filter_names,
    list_records,
    parse_selection,
)
from hasat.http.routes import check_dataset_access
from hasat.messages import msg
from hasat.pages import Page, PageRequest
from hasat.web.pages.changes import DatasetName

_PAGE_SIZE = 50
_MAX_COUNTED = 200_000
# In front of the names of columns in the address, which may be those of other parameters.
_PREFIX = "f."


@dataclass(frozen=True)
class Heading:
    """A column, and the value of `sort` that a click on its heading leads to."""

    name: str
    summary: str
    is_number: bool
    sort: str
    sorted: str
    """ascending, descending or none."""


@dataclass(frozen=True)
class FilterField:
    """A column to filter by, and the values given: by comparison, as the API names it."""

    name: str
    type: Type
    summary: str
    given: Mapping[str, str]


@dataclass(frozen=True)
class RecordRow:
    """A record: its key and name, then the values of the columns."""

    key: str
    title: str | None
    values: Sequence[Any]


@dataclass(frozen=True)
class Records:
    """The data of the page."""

    datasets: Sequence[DatasetName]
    dataset: str
    summary: str
    prefix: str
    sort: str
    filters: Sequence[FilterField]
    total: int | None
    """The number of records of all pages; None where counting them would take long."""
    columns: Sequence[Heading]
    records: Sequence[RecordRow]
    next: str | None
    """The cursor of the next page."""
    is_first: bool
    query: str
    """The conditions as parameters of this page, and those of the API."""
    api_query: str
    has_downloads: bool
    """Whether the API has the list in other formats."""
    has_own_list: bool = False
    """Whether its source lists the records on a page of its own."""


async def records(request: PageRequest) -> Records:
    """Load a page of the records that match the conditions."""
    context = request.context
    shown = _listed(request)
    names = [DatasetName(one.name, one.source) for one in shown.values()]
    chosen = request.text("dataset") or await _largest(request, shown)
    if not names:
        return Records([], "", "", "", "", [], None, [], [], None, True, "", "", False)
    if chosen not in shown:
        check_dataset_access(request.caller, chosen)
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=chosen),
            remedy=msg("Choose one of: {names}.", names=", ".join(shown)),
        )
    dataset = shown[chosen]
    if not dataset.listed:
        return Records(
            names,
            chosen,
            dataset.summary,
            "",
            "",
            [],
            None,
            [],
            [],
            None,
            True,
            "",
            "",
            False,
            True,
        )
    prefix, sort = request.text("prefix"), request.text("sort")
    given = _given(request, dataset)
    conditions = {name: _date_end(dataset, name, text) for name, text in given.items()}
    if prefix:
        conditions["key.prefix"] = prefix
    selection = parse_selection(dataset, conditions, sort or None)
    cursor = request.values.get("after")
    place = Place.parse(cursor, dataset, selection) if cursor else None
    async with request.store.snapshot() as conn:
        rows = await list_records(conn, dataset, selection, limit=_PAGE_SIZE + 1, after=place)
        total = await _total(conn, dataset, selection)
    page = rows[:_PAGE_SIZE]
    following = None
    if len(rows) > _PAGE_SIZE:
        following = Place(page[-1].position, page[-1].key).cursor(dataset, selection)
    filters = {f"{_PREFIX}{name}": text for name, text in given.items()}
    return Records(
        datasets=names,
        dataset=dataset.name,
        summary=dataset.summary,
        prefix=prefix,
        sort=sort,
        filters=[_filter_field(column, given) for column in (*dataset.columns, CHANGED_AT)],
        total=total,
        columns=[_heading(column, sort) for column in (KEY, *dataset.columns, CHANGED_AT)],
        records=[
            RecordRow(row.key, _title(dataset, row), [*row.values, row.changed_at]) for row in page
        ],
        next=following,
        is_first=cursor is None,
        query=urlencode({"dataset": dataset.name, **_filled(prefix=prefix), **filters}),
        api_query=urlencode({**conditions, **_filled(sort=sort)}),
        has_downloads=dataset.name in context.listed,
    )


def _given(request: PageRequest, dataset: Dataset) -> dict[str, str]:
    """Return the conditions of the request, by the API's names of its parameters."""
    known = filter_names(dataset)
    texts = {
        name.removeprefix(_PREFIX): request.text(name)
        for name in request.values
        if name.startswith(_PREFIX)
    }
    return {name: text for name, text in texts.items() if text and name in known}


def _date_end(dataset: Dataset, name: str, text: str) -> str:
    """Let the last day of a condition on a time count to its end."""
    column, comparison = filter_names(dataset)[name]
    is_day = column.type == "timestamp" and comparison == "lte" and "T" not in text
    return f"{text}T23:59:59.999999" if is_day else text


def _filter_field(column: Column, given: Mapping[str, str]) -> FilterField:
    own = {
        comparison: given[name]
        for comparison in ("", "gte", "lte", "prefix")
        if (name := f"{column.name}.{comparison}".rstrip(".")) in given
    }
    return FilterField(column.name, column.type, column.summary, own)


async def _total(conn: AsyncConnection[Any], dataset: Dataset, selection: Selection) -> int | None:
    cursor = await conn.execute("SELECT records FROM feed.head WHERE dataset = %s", [dataset.name])
    row = await cursor.fetchone()
    records = 0 if row is None else int(row[0])
    if not selection.filters:
        return records
    return await count_records(conn, dataset, selection) if records <= _MAX_COUNTED else None


def _title(dataset: Dataset, row: Row) -> str | None:
    return None if dataset.title is None else dataset.title_of(json.loads(row.body))


def _filled(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _listed(request: PageRequest) -> Mapping[str, Dataset]:
    """Return the datasets that the caller may read and that this page or one of a source lists."""
    own = {
        name
        for source in request.context.sources
        if source.pages is not None
        for name in source.pages().lists
    }
    datasets = (one for source in request.context.sources for one in source.datasets)
    return {
        one.name: one
        for one in datasets
        if (one.listed or one.name in own) and request.may_read(one.name)
    }


async def _largest(request: PageRequest, shown: Mapping[str, Dataset]) -> str:
    """Return the dataset of this page with most records, else the first."""
    names = [name for name, one in shown.items() if one.listed]
    async with request.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT dataset FROM feed.head WHERE records > 0 AND dataset = ANY (%s)"
            " ORDER BY records DESC, dataset LIMIT 1",
            [names],
        )
        row = await cursor.fetchone()
    return row[0] if row else next(iter(names), next(iter(shown), ""))


def _heading(column: Column, sort: str) -> Heading:
    is_descending = sort == f"-{column.name}"
    is_sorted = is_descending or (sort or KEY.name) == column.name
    return Heading(
        column.name,
        column.summary,
        column.type in ("integer", "number"),
        column.name if is_descending or not is_sorted else f"-{column.name}",
        "descending" if is_descending else "ascending" if is_sorted else "none",
    )


PAGES = (Page("/records", "records", records, "records"),)
