"""/api/v1/quota: windows, lanes, spenders and forecast of each upstream."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from hasat.budget import Quota, read_quota, reopen
from hasat.budget.quota import EndpointUse, Forecast, LaneUse, OutcomeUse, Spender, Windows
from hasat.errors import DatabaseError, NotFoundError
from hasat.http.routes import CamelModel, SettingsDep, StoreDep, audited, declare_responses
from hasat.upstreams import read_all_quotas

router = APIRouter(tags=["operation"])


class QuotaResponse(CamelModel):
    """The budget of one upstream."""

    windows: Windows
    lanes: list[LaneUse]
    spenders: list[Spender]
    outcomes: list[OutcomeUse]
    endpoints: list[EndpointUse]
    forecast: Forecast | None


class QuotasResponse(CamelModel):
    """The budgets of all upstreams."""

    upstreams: list[QuotaResponse]


_EXAMPLE = {
    "upstreams": [
        {
            "windows": {
                "upstream": "rates",
                "zone": "UTC",
                "now": "2026-11-02T18:20:00Z",
                "shadow": False,
                "day": "2026-11-02",
                "startsAt": "2026-11-02T00:00:00Z",
                "endsAt": "2026-11-03T00:00:00Z",
                "dayLimit": 75000,
                "target": 0.9,
                "spent": 51200,
                "writtenOff": 0,
                "foreignUse": 0,
                "remaining": 23800,
                "minuteLimit": 280,
                "minuteHard": 300,
                "minuteRate": 280.0,
                "lastMinute": 46,
            },
            "lanes": [],
            "spenders": [],
            "outcomes": [],
            "endpoints": [],
            "forecast": {
                "kind": "unused",
                "sentence": "4,100 of the target of 90% unused at 24:00 UTC",
                "unused": 4100,
                "target": 0.9,
            },
        }
    ]
}


def document(quotas: Sequence[Quota]) -> dict[str, Any]:
    """Return quotas as the route responds with them and `hasat quota --json` prints them."""
    response = QuotasResponse.model_validate({"upstreams": list(quotas)})
    return response.model_dump(mode="json", by_alias=True)


@router.get("/quota", summary="Quotas", responses=declare_responses(_EXAMPLE, DatabaseError))
async def quota(store: StoreDep, settings: SettingsDep) -> QuotasResponse:
    """Every window and lane of every upstream, its spenders of today, and a forecast."""
    quotas = await read_all_quotas(store, settings)
    return QuotasResponse.model_validate({"upstreams": quotas})


@router.post(
    "/quota/{upstream}/reopen",
    summary="Reopen a day",
    dependencies=[audited("quota.reopen")],
    responses=declare_responses({"reopened": True}, NotFoundError, DatabaseError),
)
async def reopen_quota(upstream: str, store: StoreDep) -> dict[str, bool]:
    """Send requests again although the upstream responded that its day is used up.

    The limits it stated today are ignored until it states them again. `reopened` is false if the
    day was open.
    """
    await read_quota(store, upstream)
    return {"reopened": await reopen(store, upstream)}
