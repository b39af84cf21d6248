"""Search over everything that has a name or a number: runs, jobs, datasets, records, pages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from psycopg import AsyncConnection

from hasat.errors import NotFoundError
from hasat.feed.dataset import Dataset
from hasat.feed.records import Row, find_record, list_records, parse_selection
from hasat.jobs.runs import get_run
from hasat.pages import Page, PageRequest
from hasat.source.parts import load_part

_MAX_RECORDS = 5


@dataclass(frozen=True)
class FoundRecord:
    """A record whose key begins with the text."""

    dataset: str
    key: str
    title: str | None


@dataclass(frozen=True)
class Link:
    """A place to go to."""

    label: str
    path: str
    detail: str | None = None


@dataclass(frozen=True)
class SearchPage:
    """The data of the page."""

    query: str
    run: int | None
    jobs: Sequence[Link]
    datasets: Sequence[Link]
    records: Sequence[FoundRecord]
    searches: Sequence[Link]
    """Pages of sources that search for the text in their own way."""

    @property
    def empty(self) -> bool:
        return not (self.run or self.jobs or self.datasets or self.records)


async def search(request: PageRequest) -> SearchPage:
    """Find a text in names and keys that the caller may read."""
    query = request.text("q")
    if not query:
        return SearchPage("", None, [], [], [], [])
    context, folded = request.context, query.casefold()
    readable = [
        dataset
        for source in context.sources
        for dataset in source.datasets
        if request.may_read(dataset.name)
    ]
    unrestricted = request.caller is None or request.caller.datasets is None
    async with request.store.snapshot() as conn:
        records = [
            FoundRecord(dataset.name, row.key, dataset.title_of(json.loads(row.body)))
            for dataset in readable
            for row in await _rows(conn, dataset, query)
        ]
    return SearchPage(
        query,
        await _run(request, query) if unrestricted else None,
        [
            Link(job.name, f"/runs?job={quote(job.name)}", job.summary)
            for job in context.catalogue.jobs.values()
            if unrestricted and folded in job.name.casefold()
        ],
        [
            Link(dataset.name, f"/records?dataset={quote(dataset.name)}", dataset.summary)
            for dataset in readable
            if unrestricted and folded in f"{dataset.name} {dataset.summary}".casefold()
        ],
        records,
        [
            Link(label, f"{path}{quote(query)}")
            for source in context.sources
            if unrestricted and (pages := load_part(source, source.pages)) is not None
            for label, path in pages.searches.items()
        ],
    )


async def _run(request: PageRequest, query: str) -> int | None:
    if not (query.isascii() and query.isdigit() and len(query) < 16 and int(query)):
        return None
    try:
        return (await get_run(request.store, int(query))).id
    except NotFoundError:
        return None


async def _rows(conn: AsyncConnection[Any], dataset: Dataset, query: str) -> Sequence[Row]:
    """Return the first records whose keys begin with the text, or the one whose key it is."""
    if not dataset.listed:
        found = await find_record(conn, dataset, query)
        return [] if found is None else [found]
    selection = parse_selection(dataset, {"key.prefix": query}, None)
    return await list_records(conn, dataset, selection, limit=_MAX_RECORDS, after=None)


PAGES = (Page("/search", "search", search, "", datasets=()),)
