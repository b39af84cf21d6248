"""/api/v1/usage: what keys and signing clients use."""

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from hasat.api.usage import MAX_DAYS, list_usage
from hasat.errors import DatabaseError
from hasat.http.routes import CallerDep, SettingsDep, StoreDep, declare_responses, reads

router = APIRouter(tags=["operation"])


class UsageItem(BaseModel):
    """The requests of a caller on one day, in the time zone of `jobs.timezone`."""

    model_config = ConfigDict(from_attributes=True)

    caller: str
    name: str | None
    day: date
    requests: int
    refused: int
    failed: int
    bytes: int


class UsageResponse(BaseModel):
    usage: list[UsageItem]


_EXAMPLE = {
    "caller": "key:k3v7qzt2ma",
    "name": "erp",
    "day": "2026-02-19",
    "requests": 1200,
    "refused": 0,
    "failed": 0,
    "bytes": 734003,
}


@router.get(
    "/usage",
    summary="Usage by key and day",
    responses=declare_responses({"usage": [_EXAMPLE]}, DatabaseError),
)
@reads()
async def usage(
    store: StoreDep,
    settings: SettingsDep,
    caller: CallerDep,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS, description="Days, today included.")] = 30,
) -> UsageResponse:
    """Newest day first; a key without the scope operate sees its own."""
    found = await list_usage(store, settings.jobs.timezone, days=days, caller=caller.owned)
    return UsageResponse(usage=[UsageItem.model_validate(one) for one in found])
