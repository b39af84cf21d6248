"""Taxpayers: lookup by number, search by title or alias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from typing import Any

from hasat.feed.changes import head_of
from hasat.messages import template
from hasat.pages import Action, NavigationEntry, Page, PageRequest, SourcePages
from hasat.sources.gib.card import issue_receipt, taxpayer_card
from hasat.sources.gib.check.page import checked_identifiers
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import kind_of
from hasat.sources.gib.lookups import look_up, taxpayer_json
from hasat.sources.gib.search import MIN_LETTERS, load_search_state, search
from hasat.sources.gib.settings import GibSettings

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
    similar: bool = False
    """Whether these are similar titles, because nothing has all words."""


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
    personal = request.context.settings.section(GibSettings).search_personal_numbers
    found = []
    async with request.store.connection() as conn:
        for dataset in DATASETS:
            cursor = await conn.execute(
                "SELECT records, committed_at FROM feed.head WHERE dataset = %s", [dataset.name]
            )
            records, committed_at = await cursor.fetchone() or (0, None)
            items: list[Mapping[str, Any]] = []
            total, similar = None, False
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
                items = [taxpayer_json(body) for body in seen.bodies]
                total, similar = seen.total, seen.similar
            found.append(DatasetResults(dataset.name, records, committed_at, items, total, similar))
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


PAGES = SourcePages(
    (
        Page("/check", "check", checked_identifiers, "check", datasets=("einvoice", "edespatch")),
        Page(
            "/taxpayers",
            "taxpayers",
            taxpayers,
            "taxpayers",
            datasets=("einvoice", "edespatch"),
        ),
        Page(
            "/taxpayers/{identifier}",
            "taxpayer",
            taxpayer_card,
            "taxpayers",
            datasets=("einvoice", "edespatch"),
        ),
    ),
    files("hasat.sources.gib") / "templates",
    (
        NavigationEntry("check", template("Check"), "/check", order=49),
        NavigationEntry("taxpayers", template("Taxpayers"), "/taxpayers", order=50),
    ),
    static=files("hasat.sources.gib") / "static",
    searches={template("Taxpayers"): "/taxpayers?q="},
    labels={
        "dataset": {
            "einvoice": template("e-Fatura"),
            "edespatch": template("e-İrsaliye"),
        },
        "field": {
            "identifier": template("Identifier"),
            "title": template("Title"),
            "type": template("Type"),
            "accountType": template("Account type"),
            "account_type": template("Account type"),
            "firstCreationTime": template("Registered"),
            "first_creation_time": template("Registered"),
            "aliases": template("Alias"),
            "aliases.alias": template("Alias"),
            "aliases.type": template("Mailbox"),
            "aliases.creationTime": template("Since"),
        },
        "event": {
            "SyncCompleted": template("Sync completed"),
            "SyncFailed": template("Sync failed"),
            "SyncPartial": template("Sync incomplete"),
        },
        "mailbox": {"PK": template("Receives"), "GB": template("Sends")},
    },
    records={"einvoice": "/taxpayers/{key}", "edespatch": "/taxpayers/{key}"},
    lists={"einvoice": "/taxpayers", "edespatch": "/taxpayers"},
    actions=(Action("/taxpayers/{identifier}/receipt", "receipt.issue", issue_receipt, "read"),),
)
