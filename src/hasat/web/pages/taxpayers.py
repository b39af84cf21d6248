"""Taxpayers: looked up by number, searched by title, found by alias."""

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
from hasat.web.page import Asked, Page

_ON_A_PAGE = 20


@dataclass(frozen=True)
class Found:
    """What one document type has of them."""

    dataset: str
    records: int
    committed_at: datetime | None
    items: Sequence[Mapping[str, Any]]
    total: int | None
    """How many there are in all; None if nothing was searched."""


@dataclass(frozen=True)
class Taxpayers:
    """All of the page."""

    text: str
    alias: str
    by_number: bool
    """Whether somebody asked for one number, and not for all who fit."""
    too_short: bool
    page: int
    pages: int
    found: Sequence[Found]
    slow_search: str | None
    """Why searching is slow for now, if it is."""


async def taxpayers(asked: Asked) -> Taxpayers:
    """By number it is a lookup, else a search; without a question only the stored totals."""
    text, alias = asked.text("q"), asked.text("alias")
    page = asked.number("page") or 1
    by_number = not alias and kind_of(text) is not None
    too_short = bool(text) and not alias and len(text) < MIN_LETTERS
    personal = asked.house.settings.gib.search_personal_numbers
    if not any(source.name == "gib" for source in asked.house.sources):
        raise NotFoundError(msg("The source gib is not installed here."))
    found = []
    async with asked.store.connection() as conn:
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
                    size=_ON_A_PAGE,
                    personal=personal,
                )
                items, total = [taxpayer_json(body) for body in seen.bodies], seen.total
            found.append(Found(dataset.name, records, committed_at, items, total))
        slow = (await load_search_state(conn)).remark()
    most = max((one.total or 0 for one in found), default=0)
    pages = max(1, -(-most // _ON_A_PAGE))
    if page > pages:
        return await taxpayers(replace(asked, values={**asked.values, "page": str(pages)}))
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
