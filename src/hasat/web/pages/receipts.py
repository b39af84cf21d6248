"""Receipts: those that the caller asked for, and each as a page to print."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.pages import Page, PageRequest
from hasat.receipts.jws import read_claims
from hasat.receipts.ledger import StoredReceipt, find_receipt, list_receipts

_PAGE_SIZE = 50


@dataclass(frozen=True)
class ReceiptRow:
    """A receipt in the list."""

    id: UUID
    identifier: str
    datasets: Sequence[str]
    issued_at: datetime


@dataclass(frozen=True)
class ReceiptsPage:
    """The data of the list."""

    identifier: str
    receipts: Sequence[ReceiptRow]
    older_than: int | None
    """The number from which the next page continues."""


@dataclass(frozen=True)
class VersionRow:
    """The version of one dataset that the answer was read from."""

    dataset: str
    epoch: str
    seq: int
    records: int
    digest: str
    committed_at: datetime


@dataclass(frozen=True)
class ReceiptPage:
    """The data of one receipt; `answer` has its fields with the path to each."""

    id: UUID
    issuer: str
    identifier: str
    issued_at: datetime
    request: str
    found: bool
    answer: Sequence[tuple[str, str]]
    versions: Sequence[VersionRow]
    lists: Sequence[Mapping[str, str]]
    kid: str
    jws: str


async def receipts(request: PageRequest) -> ReceiptsPage:
    """Load one page of receipts, newest first."""
    identifier = request.text("identifier")
    found = await list_receipts(
        request.store,
        owner=request.owned,
        identifier=identifier or None,
        before=request.number("before"),
        limit=_PAGE_SIZE + 1,
    )
    shown = found[:_PAGE_SIZE]
    rows = [ReceiptRow(one.id, one.identifier, one.datasets, one.issued_at) for one in shown]
    older = shown[-1].number if len(found) > _PAGE_SIZE else None
    return ReceiptsPage(identifier, rows, older)


async def receipt(request: PageRequest) -> ReceiptPage:
    """Load one receipt."""
    text = request.text("id")
    try:
        number = UUID(text)
    except ValueError as error:
        raise NotFoundError(msg("There is no receipt {id}.", id=text)) from error
    found = await find_receipt(request.store, number, owner=request.owned)
    return _page(found, read_claims(found.jws))


def _page(found: StoredReceipt, claims: Mapping[str, Any]) -> ReceiptPage:
    asked, answer = claims["request"], claims["response"]
    query = "&".join(f"{name}={value}" for name, value in asked.get("query", {}).items())
    address = f"{asked.get('method', '')} {asked.get('path', '')}".strip()
    return ReceiptPage(
        id=found.id,
        issuer=claims["iss"],
        identifier=found.identifier,
        issued_at=found.issued_at,
        request=f"{address}?{query}" if query else address,
        found=not (isinstance(answer, dict) and answer.get("status") == NotFoundError.status),
        answer=list(_fields(answer)),
        versions=[
            VersionRow(
                name,
                one["epoch"],
                one["seq"],
                one["records"],
                one["digest"],
                datetime.fromisoformat(one["committedAt"]),
            )
            for name, one in claims["version"].items()
            if isinstance(one, dict)
        ],
        lists=claims["lists"],
        kid=found.kid,
        jws=found.jws,
    )


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of an answer with their paths, in its order."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _fields(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for place, one in enumerate(value, 1):
            yield from _fields(one, f"{path} {place}")
    elif isinstance(value, str):
        yield path, value
    else:
        yield path, "" if value in (None, [], {}) else json.dumps(value)


PAGES = (
    Page("/receipts", "receipts", receipts, "receipts"),
    Page("/receipts/{id}", "receipt", receipt, "receipts"),
)
