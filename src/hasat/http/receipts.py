"""Answers with a receipt: the parameter `receipt=true` of routes that look something up."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from psycopg import AsyncConnection
from starlette.responses import Response

from hasat.clock import local_time
from hasat.errors import NotFoundError
from hasat.feed.dataset import Dataset
from hasat.http.routes import Caller, dumps, exchange_of, json_response
from hasat.receipts.ledger import StoredReceipt, consult, issue
from hasat.settings import Settings
from hasat.store import Store

ReceiptFlag = Annotated[
    bool,
    Query(description="Add a signed receipt of the answer, also where nothing is found."),
]


def owner_of(caller: Caller | None) -> str:
    """Return whom a receipt belongs to: a login shares the receipts of its key."""
    return "unknown" if caller is None else caller.bucket


def readable_by(caller: Caller | None) -> str | None:
    """Return the owner whose receipts a caller may read; None for all."""
    return owner_of(caller) if caller is None else caller.owned


@dataclass(frozen=True)
class SignedAnswer:
    """An answer and its receipt; `missing` replaces the answer where there is no such record."""

    content: str
    missing: NotFoundError | None
    receipt: StoredReceipt
    committed_at: datetime


async def sign_answer(
    store: Store,
    settings: Settings,
    caller: Caller | None,
    datasets: Sequence[Dataset],
    identifier: str,
    question: Mapping[str, Any],
    answer: Callable[[AsyncConnection[Any]], Awaitable[str]],
    *,
    past: bool = False,
) -> SignedAnswer:
    """Answer a question about a record and issue a receipt of the answer.

    `answer` reads from the snapshot of its connection, which is also where the versions in the
    receipt are read. `question` has method, path and query of the request.
    """
    missing: NotFoundError | None = None
    content = ""
    # The primary: a standby may not have the newest version yet.
    async with store.primary.snapshot() as conn:
        consulted = await consult(conn, datasets, identifier, past=past)
        try:
            content = await answer(conn)
        except NotFoundError as error:
            missing = error
    receipt = await issue(
        store,
        settings,
        consulted,
        owner=owner_of(caller),
        identifier=identifier,
        request={**question, "datasets": list(consulted.datasets), "identifier": identifier},
        response=json.loads(content) if missing is None else _refusal(missing),
    )
    return SignedAnswer(content, missing, receipt, consulted.committed_at)


async def answer_with_receipt(
    request: Request,
    datasets: Sequence[Dataset],
    identifier: str,
    answer: Callable[[AsyncConnection[Any]], Awaitable[str]],
    *,
    past: bool = False,
) -> Response:
    """Return the JSON object of an answer with a receipt of it.

    That there is no such record is an answer too: the problem has the receipt.
    """
    store: Store = request.app.state.store
    exchange = exchange_of(request.scope)
    if exchange.method == "HEAD":
        # The response has no body that could carry a receipt.
        async with store.primary.snapshot() as conn:
            return json_response(await answer(conn))
    signed = await sign_answer(
        store,
        request.app.state.settings,
        exchange.caller,
        datasets,
        identifier,
        {
            "method": request.method,
            "path": request.url.path,
            "query": {k: v for k, v in request.query_params.items() if k != "receipt"},
        },
        answer,
        past=past,
    )
    receipt = receipt_json(signed.receipt)
    if signed.missing is not None:
        signed.missing.extensions = {"receipt": receipt}
        raise signed.missing
    headers = {"Cache-Control": "no-store", "X-Last-Sync-At": local_time(signed.committed_at)}
    return json_response(f'{signed.content[:-1]},"receipt":{dumps(receipt)}}}', headers)


def receipt_json(receipt: StoredReceipt) -> dict[str, str]:
    """Return a receipt as an answer has it."""
    return {"id": str(receipt.id), "jws": receipt.jws}


def _refusal(error: NotFoundError) -> dict[str, Any]:
    return {"status": error.status, "code": error.code, "detail": str(error.message)}
