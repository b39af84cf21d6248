"""HTTP routes that check identifiers."""

import hashlib
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request
from psycopg import AsyncConnection
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from hasat.clock import local_time
from hasat.errors import UnavailableError
from hasat.feed.lookups import RecordLookups
from hasat.http.receipts import ReceiptFlag, answer_with_receipt
from hasat.http.routes import (
    CamelModel,
    LookupsDep,
    StorableText,
    body_limit,
    conditional_json_response,
    declare_responses,
    dumps,
    exchange_of,
    lean,
    reads,
)
from hasat.sources.gib.check.answers import check, check_current
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import MalformedIdentifierError, malformed_entry

MAX_IDENTIFIERS = 5000

_ALIAS = {
    "alias": "urn:mail:defaultpk@ornek.com.tr",
    "type": "PK",
    "creationTime": "2024-06-15T00:00:00",
}
_EXAMPLE = {
    "identifier": "1234567890",
    "valid": True,
    "kind": "VKN",
    "title": "ÖRNEK FİRMA A.Ş.",
    "einvoice": {
        "registered": True,
        "since": "2024-06-15T00:00:00",
        "aliases": [_ALIAS],
        "sendTo": _ALIAS["alias"],
    },
    "edespatch": {"registered": False, "since": None, "aliases": [], "sendTo": None},
    "invoiceKind": "e-Fatura",
    "version": {
        "committedAt": "2026-02-19T15:03:40.118340",
        "einvoice": {"epoch": "7b1c3b62-5d2f-4f0e-9c43-3f2a8e9d1c55", "seq": 912},
        "edespatch": {"epoch": "0e6a2f0b-9c1e-4a55-8d5e-6f1b2c3d4e5f", "seq": 340},
    },
}

_BOTH = ("einvoice", "edespatch")
router = APIRouter(prefix="/check", tags=["check"])


class Alias(CamelModel):
    """A receiver alias of a taxpayer."""

    alias: str
    type: str
    creation_time: str | None


class Registration(CamelModel):
    """Whether a taxpayer is active in one list, and where to send to."""

    registered: bool
    since: str | None
    aliases: list[Alias]
    send_to: str | None


class CheckAnswer(CamelModel):
    """Whether to send a taxpayer an e-Fatura or an e-Arşiv invoice, and where to."""

    identifier: str
    valid: bool
    kind: str
    title: str | None
    einvoice: Registration
    edespatch: Registration
    invoice_kind: str
    version: dict[str, Any]
    receipt: dict[str, Any] | None = Field(default=None, description="Only with `receipt=true`.")


class Malformed(CamelModel):
    """An entry that cannot be an identifier."""

    input: str
    reason: str
    likely: str | None


class CheckAnswers(CamelModel):
    """The answers for a list of identifiers, from one snapshot."""

    items: list[CheckAnswer]
    malformed: list[Malformed]


class CheckRequest(BaseModel):
    """The identifiers to check."""

    model_config = ConfigDict(extra="forbid")

    identifiers: list[StorableText] = Field(
        min_length=1, max_length=MAX_IDENTIFIERS, examples=[["1234567890", "864387"]]
    )


async def _current(request: Request, identifier: str) -> Response:
    lookups: RecordLookups = request.app.state.lookups
    found = await check_current(lookups, [identifier])
    content = orjson.dumps(found.answer(identifier))
    return conditional_json_response(
        request,
        lambda: content,
        hashlib.sha256(content).hexdigest(),
        {"X-Last-Sync-At": local_time(found.committed_at)},
    )


@router.get(
    "/{identifier}",
    summary="Check one identifier",
    response_class=Response,
    responses=declare_responses(
        _EXAMPLE, MalformedIdentifierError, UnavailableError, model=CheckAnswer
    ),
)
@reads(*_BOTH)
@lean("[0-9]{10,11}", _current)
async def check_one(
    request: Request,
    identifier: Annotated[str, Path(examples=["1234567890"])],
    receipt: ReceiptFlag = False,
) -> Response:
    """Registered or not, the aliases to send to, and the kind of invoice, in both datasets.

    An identifier that is not registered is a 200 with `registered: false`. One that is malformed is
    a 400, with the likely identifier in `params.likely`.
    """
    if not receipt:
        return await _current(request, identifier)

    async def answer(conn: AsyncConnection[Any]) -> str:
        return dumps((await check(conn, [identifier])).answer(identifier))

    return await answer_with_receipt(request, DATASETS, identifier, answer)


@router.post(
    "",
    summary="Check many identifiers",
    response_class=Response,
    responses=declare_responses(
        {
            "items": [_EXAMPLE],
            "malformed": [
                {
                    "input": "864387",
                    "reason": "has 6 digits, not 10 or 11",
                    "likely": "0000864387",
                }
            ],
        },
        UnavailableError,
        model=CheckAnswers,
    ),
)
@body_limit(2_000_000)
@reads(*_BOTH)
async def check_many(request: Request, body: CheckRequest, lookups: LookupsDep) -> Response:
    """Up to 5,000 identifiers, from one snapshot: one entry for each, in the order asked.

    `malformed` has the texts that are not identifiers, with the likely identifier, which is not
    looked up.
    """
    found = await check_current(lookups, body.identifiers)
    language = exchange_of(request.scope).language
    items: list[dict[str, Any]] = []
    malformed: list[dict[str, Any]] = []
    for one in body.identifiers:
        if (malformation := found.find_malformation(one)) is None:
            items.append(found.answer(one))
        else:
            malformed.append(malformed_entry(one, malformation, language))
    content = orjson.dumps({"items": items, "malformed": malformed})
    headers = {"X-Last-Sync-At": local_time(found.committed_at)}
    return Response(content, headers=headers, media_type="application/json")
