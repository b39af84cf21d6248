"""Answers with a receipt: the parameter `receipt=true` of routes that look something up."""

import json
from collections.abc import Awaitable, Callable, Sequence
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


async def answer_with_receipt(
    request: Request,
    datasets: Sequence[Dataset],
    identifier: str,
    answer: Callable[[AsyncConnection[Any]], Awaitable[str]],
    *,
    past: bool = False,
) -> Response:
    """Return the JSON object of an answer with a receipt of it.

    `answer` reads from the snapshot of its connection, which is also where the versions in the
    receipt are read. That there is no such record is an answer too: the problem has the receipt.
    """
    store: Store = request.app.state.store
    settings: Settings = request.app.state.settings
    missing: NotFoundError | None = None
    content = ""
    # The primary: a standby may not have the newest version yet.
    async with store.primary.snapshot() as conn:
        consulted = await consult(conn, datasets, identifier, past=past)
        try:
            content = await answer(conn)
        except NotFoundError as error:
            missing = error
    exchange = exchange_of(request.scope)
    if exchange.method == "HEAD":
        # The response has no body that could carry one.
        if missing is not None:
            raise missing
        return json_response(content)
    receipt = await issue(
        store,
        settings,
        consulted,
        owner=owner_of(exchange.caller),
        identifier=identifier,
        request={
            "method": request.method,
            "path": request.url.path,
            "query": {k: v for k, v in request.query_params.items() if k != "receipt"},
            "datasets": list(consulted.datasets),
            "identifier": identifier,
        },
        response=json.loads(content) if missing is None else _refusal(missing),
    )
    if missing is not None:
        missing.extensions = {"receipt": receipt_json(receipt)}
        raise missing
    headers = {"Cache-Control": "no-store", "X-Last-Sync-At": local_time(consulted.committed_at)}
    return json_response(f'{content[:-1]},"receipt":{dumps(receipt_json(receipt))}}}', headers)


def receipt_json(receipt: StoredReceipt) -> dict[str, str]:
    """Return a receipt as an answer has it."""
    return {"id": str(receipt.id), "jws": receipt.jws}


def _refusal(error: NotFoundError) -> dict[str, Any]:
    return {"status": error.status, "code": error.code, "detail": str(error.message)}
