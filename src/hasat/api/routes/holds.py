"""/api/v1/holds: runs that the guard holds, and the decision about them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hasat.api.routes.jobs import RunResponse, queued_responses
from hasat.errors import ConflictError, NotFoundError
from hasat.feed.holds import get_hold, list_holds, reject_hold
from hasat.http.routes import (
    CamelModel,
    SettingsDep,
    StorableText,
    StoreDep,
    audited,
    declare_responses,
)
from hasat.jobs.approvals import queue_approval
from hasat.settings.reference import plain
from hasat.store.audit import MAX_TEXT, describe_action
from hasat.text import MAX_EXACT_INTEGER

router = APIRouter(tags=["operation"])

Number = Annotated[int, Path(ge=1, le=MAX_EXACT_INTEGER, description="The number of the held run.")]
State = Literal["waiting", "approved", "rejected", "superseded"]


class HoldResponse(CamelModel):
    """A run that the guard held; it changed nothing."""

    model_config = ConfigDict(from_attributes=True)

    id: int = Field(description="The number of the held run.")
    job: str
    source: str | None
    datasets: list[str]
    params: Annotated[dict[str, Any], AfterValidator(plain)]
    state: State
    at: datetime
    runs: list[int] = Field(description="All runs with this finding; the first is the id.")
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None
    machine: str | None = Field(
        description="The only machine that has the stored input; null where every machine can."
    )
    preview: dict[str, Any] = Field(
        description="The guard's measures, and the changes that the run would make."
    )


class HoldsResponse(CamelModel):
    holds: list[HoldResponse]


class NewDecision(BaseModel):
    """A decision about a hold."""

    model_config = ConfigDict(extra="forbid")

    reason: StorableText | None = Field(
        default=None, max_length=MAX_TEXT, description="Why, for the hold and the audit record."
    )


_HOLD = {
    "id": 42,
    "job": "rates_sync",
    "source": "bank",
    "datasets": ["rates"],
    "params": {},
    "state": "waiting",
    "at": "2026-11-02T06:04:11.000214Z",
    "runs": [42],
    "decidedAt": None,
    "decidedBy": None,
    "reason": None,
    "machine": None,
    "preview": {
        "measures": [
            {
                "subject": "rates",
                "what": "removed",
                "value": 48.2,
                "limit": 10.0,
                "exceeded": True,
            }
        ],
        "datasets": {"rates": {"added": 0, "modified": 3, "removed": 482, "total": 518}},
        "examples": {},
    },
}


@router.get("/holds", summary="Held runs", responses=declare_responses({"holds": [_HOLD]}))
async def holds(
    store: StoreDep,
    state: Annotated[State | None, Query(description="Only those of this state.")] = None,
    source: Annotated[
        StorableText | None, Query(max_length=100, description="Only this source.")
    ] = None,
    before: Annotated[
        int | None, Query(ge=1, le=MAX_EXACT_INTEGER, description="Only older ones.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number.")] = 50,
) -> HoldsResponse:
    """Newest first; `before` continues after the last one of a page."""
    found = await list_holds(store, state=state, source=source, before=before, limit=limit)
    return HoldsResponse(holds=[HoldResponse.model_validate(one) for one in found])


@router.get(
    "/holds/{number}", summary="One held run", responses=declare_responses(_HOLD, NotFoundError)
)
async def hold(number: Number, store: StoreDep) -> HoldResponse:
    """With the guard's measures and some examples of the changes."""
    return HoldResponse.model_validate(await get_hold(store, number))


@router.post(
    "/holds/{number}/approve",
    status_code=202,
    summary="Approve a held run",
    dependencies=[audited("hold.approve")],
    responses=queued_responses(NotFoundError, ConflictError),
)
async def approve(
    number: Number,
    request: Request,
    response: Response,
    store: StoreDep,
    decision: NewDecision | None = None,
) -> RunResponse:
    """Queues the run that applies the stored input exactly as it was; `Location` is the run."""
    describe_action(reason=decision.reason if decision else None)
    run = await queue_approval(store, request.app.state.catalogue, number)
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return RunResponse.model_validate(run)


@router.post(
    "/holds/{number}/reject",
    summary="Reject a held run",
    dependencies=[audited("hold.reject")],
    responses=declare_responses({**_HOLD, "state": "rejected"}, NotFoundError, ConflictError),
)
async def reject(
    number: Number, store: StoreDep, settings: SettingsDep, decision: NewDecision | None = None
) -> HoldResponse:
    """Discards its input; it cannot be approved afterwards."""
    describe_action(reason=decision.reason if decision else None)
    return HoldResponse.model_validate(await reject_hold(store, settings, number))
