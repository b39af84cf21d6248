"""Records: the list of a dataset with its declared columns, filtered, sorted and downloaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hasat.errors import NotFoundError
from hasat.feed.columns import CHANGED_AT, KEY, Column
from hasat.feed.dataset import Dataset
from hasat.feed.records import Place, list_records, parse_selection
from hasat.messages import msg
from hasat.pages import Page, PageContext, PageRequest
from hasat.web.pages.changes import DatasetName

_PAGE_SIZE = 50


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
class RecordRow:
    """A record: its key, then the values of the columns."""

    key: str
    values: Sequence[Any]


@dataclass(frozen=True)
class Records:
    """The data of the page."""

    datasets: Sequence[DatasetName]
    dataset: str
    summary: str
    prefix: str
    sort: str
    columns: Sequence[Heading]
    records: Sequence[RecordRow]
    next: str | None
    """The cursor of the next page."""
    has_downloads: bool
    """Whether the API has the list in other formats."""


async def records(request: PageRequest) -> Records:
    """Load a page of the records whose key begins with a text."""
    context = request.context
    shown = _listed(context)
    names = [DatasetName(one.name, one.source) for one in shown.values()]
    chosen = request.text("dataset") or (names[0].name if names else "")
    if not names:
        return Records([], "", "", "", "", [], [], None, False)
    if chosen not in shown:
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=chosen),
            remedy=msg("Choose one of: {names}.", names=", ".join(shown)),
        )
    dataset = shown[chosen]
    prefix, sort = request.text("prefix"), request.text("sort")
    selection = parse_selection(dataset, {"key.prefix": prefix} if prefix else {}, sort or None)
    cursor = request.values.get("after")
    place = Place.parse(cursor, dataset, selection) if cursor else None
    async with request.store.snapshot() as conn:
        rows = await list_records(conn, dataset, selection, limit=_PAGE_SIZE + 1, after=place)
    page = rows[:_PAGE_SIZE]
    following = None
    if len(rows) > _PAGE_SIZE:
        following = Place(page[-1].position, page[-1].key).cursor(dataset, selection)
    return Records(
        datasets=names,
        dataset=dataset.name,
        summary=dataset.summary,
        prefix=prefix,
        sort=sort,
        columns=[_heading(column, sort) for column in (KEY, *dataset.columns, CHANGED_AT)],
        records=[RecordRow(row.key, [*row.values, row.changed_at]) for row in page],
        next=following,
        has_downloads=dataset.name in context.listed,
    )


def _listed(context: PageContext) -> Mapping[str, Dataset]:
    """Return the datasets whose records lists may show."""
    datasets = (one for source in context.sources for one in source.datasets)
    return {one.name: one for one in datasets if one.listed}


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
