"""The card of a taxpayer: both document types, aliases to copy, history, a signed receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from hasat.feed.changes import history, is_filled
from hasat.feed.dataset import Dataset
from hasat.http.receipts import sign_answer
from hasat.http.routes import dumps
from hasat.pages import PageRequest
from hasat.pages.differences import ChangeRow, describe_change
from hasat.sources.gib.check.answers import check, receiver_aliases
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import has_valid_checksum, kind_of
from hasat.sources.gib.lookups import look_up


@dataclass(frozen=True)
class Registration:
    """What one dataset has about the taxpayer; `body` is None if it is not registered there."""

    dataset: str
    committed_at: datetime | None
    """The newest commit; None before the first."""
    body: Mapping[str, Any] | None
    send_to: str | None
    """The receiver alias to send documents to."""


@dataclass(frozen=True)
class DatasetChange:
    """A change of the taxpayer in one dataset."""

    dataset: str
    change: ChangeRow


@dataclass(frozen=True)
class TaxpayerCard:
    """The data of the page; the history has both datasets, newest first."""

    identifier: str
    kind: str | None
    is_valid: bool
    title: str | None
    type: str | None
    account_type: str | None
    registrations: Sequence[Registration]
    history: Sequence[DatasetChange]


async def taxpayer_card(request: PageRequest) -> TaxpayerCard:
    """Load a taxpayer by identifier."""
    identifier = request.text("identifier")
    registrations: list[Registration] = []
    changes: list[DatasetChange] = []
    past: list[Mapping[str, Any]] = []
    async with request.store.snapshot() as conn:
        for dataset in DATASETS:
            registrations.append(await _registration(conn, dataset, identifier))
            found = await history(conn, dataset, identifier)
            changes += [DatasetChange(dataset.name, describe_change(one)) for one in found]
            past += [one.before for one in reversed(found) if one.before]
    bodies = [one.body for one in registrations if one.body] or past
    first: Mapping[str, Any] = bodies[0] if bodies else {}
    return TaxpayerCard(
        identifier=identifier,
        kind=kind_of(identifier),
        is_valid=has_valid_checksum(identifier),
        title=next((body["title"] for body in bodies if body["title"]), None),
        type=first.get("type"),
        account_type=first.get("accountType"),
        registrations=registrations,
        history=sorted(changes, key=lambda one: one.change.changed_at, reverse=True),
    )


async def issue_receipt(request: PageRequest) -> str:
    """Sign what both datasets say about the taxpayer now, and show the receipt."""
    identifier = request.text("identifier")

    async def answer(conn: AsyncConnection[Any]) -> str:
        return dumps((await check(conn, [identifier])).answer(identifier))

    signed = await sign_answer(
        request.store,
        request.context.settings,
        request.caller,
        DATASETS,
        identifier,
        {"method": "GET", "path": f"/api/v1/check/{identifier}", "query": {}},
        answer,
    )
    return f"/receipts/{signed.receipt.id}"


async def _registration(
    conn: AsyncConnection[Any], dataset: Dataset, identifier: str
) -> Registration:
    if not await is_filled(conn, dataset.name):
        return Registration(dataset.name, None, None, None)
    found = await look_up(conn, dataset, [identifier])
    body = found.bodies.get(identifier)
    receivers = [] if body is None else receiver_aliases(body)
    send_to = receivers[0]["alias"] if receivers else None
    return Registration(dataset.name, found.committed_at, body, send_to)
