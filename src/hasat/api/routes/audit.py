"""/api/v1/audit: recorded actions with actor, address, reason and outcome."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from hasat.errors import DatabaseError, NotAllowedError
from hasat.http.routes import CamelModel, StorableText, StoreDep, declare_responses, require
from hasat.store.audit import ActorKind, AuditOutcome, AuditRecord, list_audit
from hasat.text import MAX_EXACT_INTEGER

router = APIRouter(tags=["operation"])


class AuditRecordResponse(CamelModel):
    """One recorded action."""

    id: int
    at: datetime
    actor: str = Field(description="Name of the key, or the user who ran a command.")
    actor_kind: ActorKind
    address: str = Field(description="The remote address, or the host name for a command.")
    action: str
    object: str = Field(description="The object of the action, such as a run or a key.")
    reason: str | None
    outcome: AuditOutcome
    detail: dict[str, Any]


class AuditResponse(BaseModel):
    records: list[AuditRecordResponse]
    next: int | None = Field(description="`before` of the next page; null on the last one.")


_RECORD = {
    "id": 17,
    "at": "2026-11-02T06:04:11.000214Z",
    "actor": "ops",
    "actorKind": "key",
    "address": "192.0.2.17",
    "action": "hold.approve",
    "object": "42",
    "reason": "The list was cleaned up",
    "outcome": "done",
    "detail": {"caller": "key:k3v7qzt2ma", "job": "rates_sync", "run": 43},
}


def document(record: AuditRecord) -> dict[str, Any]:
    """Return a record as the route responds with it and `hasat audit --json` prints it."""
    return AuditRecordResponse.model_validate(record).model_dump(mode="json", by_alias=True)


@router.get(
    "/audit",
    summary="Recorded actions, newest first",
    dependencies=[Depends(require("operate"))],
    responses=declare_responses(
        {"records": [_RECORD], "next": None}, NotAllowedError, DatabaseError
    ),
)
async def audit(
    store: StoreDep,
    actor: Annotated[
        StorableText | None, Query(max_length=200, description="Only this actor.")
    ] = None,
    action: Annotated[
        StorableText | None,
        Query(
            max_length=100,
            description="Only this code, or all codes with this prefix, such as `hold`.",
        ),
    ] = None,
    before: Annotated[
        int | None,
        Query(ge=1, le=MAX_EXACT_INTEGER, description="Only records with a lower number."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number.")] = 100,
) -> AuditResponse:
    """Every action that changes state, including refused ones; requires the scope `operate`."""
    found = await list_audit(store, actor=actor, action=action, before=before, limit=limit + 1)
    shown = found[:limit]
    return AuditResponse(
        records=[AuditRecordResponse.model_validate(one) for one in shown],
        next=shown[-1].id if len(found) > limit else None,
    )
