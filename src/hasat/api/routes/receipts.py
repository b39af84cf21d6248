"""Signed receipts: read again by id and identifier, and the public keys that verify them."""

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from hasat.errors import DatabaseError, NotFoundError
from hasat.http.receipts import readable_by
from hasat.http.routes import (
    CamelModel,
    ReadStoreDep,
    SettingsDep,
    StorableText,
    StoreDep,
    declare_responses,
    dumps,
    exchange_of,
    json_response,
)
from hasat.receipts.jws import public_jwk, read_claims
from hasat.receipts.keys import signing_key
from hasat.receipts.ledger import (
    StoredReceipt,
    find_receipt,
    list_key,
    list_receipts,
    listed_keys,
)
from hasat.text import MAX_EXACT_INTEGER

router = APIRouter(tags=["receipts"])
public_router = APIRouter(tags=["receipts"])

_JWK = {
    "crv": "Ed25519",
    "kty": "OKP",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    "use": "sig",
    "alg": "EdDSA",
}
_SUMMARY = {
    "number": 17,
    "id": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "identifier": "1234567890",
    "datasets": ["einvoice"],
    "issuedAt": "2026-11-02T06:04:11Z",
    "kid": _JWK["kid"],
}
_RECEIPT = {
    **_SUMMARY,
    "claims": {"iss": "hasat", "iat": 1_793_599_451, "jti": _SUMMARY["id"]},
    "jws": "eyJhbGciOiJFZERTQSIs…",
}


class ReceiptSummary(CamelModel):
    """A receipt in a list."""

    number: int = Field(description="Its place in the chain of all receipts.")
    id: UUID
    identifier: str = Field(description="The key that was looked up.")
    datasets: list[str]
    issued_at: datetime
    kid: str = Field(description="The key that signed it, as /.well-known/jwks.json names it.")


class ReceiptResponse(ReceiptSummary):
    claims: dict[str, Any] = Field(description="What the receipt states.")
    jws: str = Field(description="The receipt itself: a compact JWS.")


class ReceiptsResponse(CamelModel):
    items: list[ReceiptSummary]
    next: int | None = Field(description="`before` of the next page; null on the last one.")


def receipt_document(receipt: StoredReceipt) -> dict[str, Any]:
    """Return a receipt as the route responds with it and `hasat receipt show --json` prints it."""
    document = ReceiptResponse.model_validate({**vars(receipt), "claims": read_claims(receipt.jws)})
    return document.model_dump(mode="json", by_alias=True)


def summary_document(receipt: StoredReceipt) -> dict[str, Any]:
    """Return a receipt as lists have it."""
    return ReceiptSummary.model_validate(receipt).model_dump(mode="json", by_alias=True)


@router.get(
    "/receipts",
    summary="Receipts, newest first",
    responses=declare_responses({"items": [_SUMMARY], "next": None}, DatabaseError),
)
async def receipts(
    request: Request,
    store: ReadStoreDep,
    identifier: Annotated[
        StorableText | None, Query(max_length=500, description="Only about this key.")
    ] = None,
    before: Annotated[
        int | None, Query(ge=1, le=MAX_EXACT_INTEGER, description="`next` of the previous page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number.")] = 50,
) -> ReceiptsResponse:
    """Those that the caller asked for; with the scope `operate`, all."""
    found = await list_receipts(
        store,
        owner=readable_by(exchange_of(request.scope).caller),
        identifier=identifier,
        before=before,
        limit=limit + 1,
    )
    shown = found[:limit]
    return ReceiptsResponse(
        items=[ReceiptSummary.model_validate(one) for one in shown],
        next=shown[-1].number if len(found) > limit else None,
    )


@router.get(
    "/receipts/{id}",
    summary="One receipt",
    response_class=Response,
    responses=declare_responses(_RECEIPT, NotFoundError, DatabaseError),
)
async def receipt(
    request: Request,
    id: UUID,  # noqa: A002 - the name in the path
    store: StoreDep,
    form: Annotated[
        Literal["json", "jws"],
        Query(alias="format", description="`jws`: the receipt alone, for a file."),
    ] = "json",
) -> Response:
    """Return the statement of a receipt, and the receipt to verify elsewhere."""
    owner = readable_by(exchange_of(request.scope).caller)
    found = await find_receipt(store, id, owner=owner)
    headers = {"Cache-Control": "private, max-age=86400"}
    if form == "jws":
        headers["Content-Disposition"] = f'attachment; filename="{found.id}.jws"'
        return Response(found.jws, headers=headers, media_type="application/jose")
    return json_response(dumps(receipt_document(found)), headers)


@public_router.get(
    "/.well-known/jwks.json",
    summary="Public keys of receipts",
    responses=declare_responses({"keys": [_JWK]}, DatabaseError),
)
async def jwks(response: Response, store: StoreDep, settings: SettingsDep) -> dict[str, Any]:
    """Every key that receipts were or are signed with, on any machine (RFC 7517)."""
    key = await asyncio.to_thread(signing_key, settings)
    keys = await listed_keys(store)
    if key.kid not in keys:
        await list_key(store, key)
        keys = await listed_keys(store)
    response.headers["Cache-Control"] = "public, max-age=300"
    return {"keys": [public_jwk(one) for one in keys.values()]}
