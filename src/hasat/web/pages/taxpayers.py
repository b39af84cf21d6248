"""Taxpayers: lookup by number, search by title or alias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hasat.errors import NotFoundError
from hasat.feed.changes import head_of
from hasat.messages import msg
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import kind_of
from hasat.sources.gib.lookups import look_up, taxpayer_json
from hasat.sources.gib.search import MIN_LETTERS, load_search_state, search
from hasat.web.page import Page, PageRequest

_PAGE_SIZE = 20


@dataclass(frozen=True)
class DatasetResults:
    """The results in the dataset of one document type."""

    dataset: str
    records: int
    committed_at: datetime | None
    items: Sequence[Mapping[str, Any]]
    total: int | None
    """The number of results; None if nothing was searched."""


@dataclass(frozen=True)
class Taxpayers:
    """The data of the page."""

    text: str
    alias: str
    by_number: bool
    """Whether the text is a complete number: a lookup instead of a search."""
    too_short: bool
    page: int
    pages: int
    found: Sequence[DatasetResults]
    slow_search: str | None
    """Why searching is slow at the moment, if it is."""


async def taxpayers(request: PageRequest) -> Taxpayers:
    """Look up a number or search a text; without either, load the totals only."""
    text, alias = request.text("q"), request.text("alias")
    page = request.number("page") or 1
    by_number = not alias and kind_of(text) is not None
    too_short = bool(text) and not alias and len(text) < MIN_LETTERS
    personal = request.context.settings.gib.search_personal_numbers
    if not any(source.name == "gib" for source in request.context.sources):
        raise NotFoundError(msg("The source gib is not installed here."))
    found = []
    async with request.store.connection() as conn:
        for dataset in DATASETS:
            cursor = await conn.execute(
                "SELECT records, committed_at FROM feed.head WHERE dataset = %s", [dataset.name]
            )
            records, committed_at = await cursor.fetchone() or (0, None)
            items: list[Mapping[str, Any]] = []
            total = None
            if committed_at is not None and by_number:
                there = await look_up(conn, dataset, [text])
                items = [taxpayer_json(body) for body in there.bodies.values()]
                total = len(items)
            elif committed_at is not None and (text or alias) and not too_short:
                await head_of(conn, dataset.name)
                seen = await search(
                    conn,
                    dataset,
                    text=text,
                    alias=alias or None,
                    page=page,
                    size=_PAGE_SIZE,
                    personal=personal,
                )
                items, total = [taxpayer_json(body) for body in seen.bodies], seen.total
            found.append(DatasetResults(dataset.name, records, committed_at, items, total))
        slow = (await load_search_state(conn)).remark()
    most = max((one.total or 0 for one in found), default=0)
    pages = max(1, -(-most // _PAGE_SIZE))
    if page > pages:
        return await taxpayers(replace(request, values={**request.values, "page": str(pages)}))
    filled = any(one.committed_at for one in found)
    return Taxpayers(
        text=text,
        alias=alias,
        by_number=by_number,
        too_short=too_short,
        page=page,
        pages=pages,
        found=found,
        slow_search=slow if filled else None,
    )


PAGES = (Page("/taxpayers", "taxpayers", taxpayers, "taxpayers"),)
