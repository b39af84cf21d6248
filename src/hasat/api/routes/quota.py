"""/api/v1/quota: what is left at each upstream, who spent it, and what the day will come to."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from hasat.budget import Quota, read_quota, reopen
from hasat.errors import DatabaseError, NotFoundError
from hasat.http.routes import SettingsDep, StoreDep, audited, declare_responses
from hasat.sources.upstreams import read_all_quotas

router = APIRouter(tags=["operation"])


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, from_attributes=True)


class WindowsAnswer(_Camel):
    upstream: str
    zone: str
    now: datetime
    shadow: bool = Field(description="Whether requests are only counted, never refused.")
    day: date
    starts_at: datetime
    ends_at: datetime
    day_limit: int | None = Field(description="null: there is no day window.")
    plan: int | None = Field(description="The least day limit that the upstream stated today.")
    target: float
    spent: int
    written_off: int = Field(description="Of spent: charged after crashes of the database.")
    foreign_use: int = Field(description="What others spent on the same key, by its own count.")
    remaining: int | None
    exhausted_at: datetime | None = Field(description="When the upstream said that it was enough.")
    recheck_at: datetime | None = Field(
        description="When it is re-checked whether the day is used up; null: it is open, or closed "
        "until it ends."
    )
    minute_limit: int | None
    minute_hard: int | None
    minute_plan: int | None
    minute_rate: float | None = Field(description="Requests a minute that are let through now.")
    last_minute: int
    paused_until: datetime | None


class LaneAnswer(_Camel):
    name: str
    paced: bool
    keep: int = Field(description="What must remain of the day after a grant.")
    spent: int
    grants: int
    waits: int
    waited_seconds: float
    refusals: int
    last_hour: int
    kept_for_others: int
    may_spend: int | None


class SpenderAnswer(_Camel):
    job: str
    lane: str
    spent: int
    grants: int
    refusals: int


class OutcomeAnswer(_Camel):
    outcome: str | None = Field(description="null: no answer, or none yet.")
    requests: int
    spent: int
    median_ms: float | None
    p95_ms: float | None


class EndpointAnswer(_Camel):
    name: str
    day_limit: int | None
    spent: int
    exhausted_at: datetime | None
    rest_until: datetime | None


class ForecastAnswer(_Camel):
    kind: str = Field(description="spent, runs_out, unused or on_target.")
    sentence: str
    at: datetime | None
    unused: int
    target: float | None = Field(
        description="The share of the day's limit that `unused` stays short of; without one it is "
        "measured against all that may be spent."
    )


class QuotaAnswer(_Camel):
    windows: WindowsAnswer
    lanes: list[LaneAnswer]
    spenders: list[SpenderAnswer]
    outcomes: list[OutcomeAnswer]
    endpoints: list[EndpointAnswer]
    forecast: ForecastAnswer | None


class QuotasAnswer(_Camel):
    upstreams: list[QuotaAnswer]


_EXAMPLE = {
    "upstreams": [
        {
            "windows": {
                "upstream": "football",
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
                "sentence": "4,100 short of the target of 90% at 24:00 UTC",
                "unused": 4100,
                "target": 0.9,
            },
        }
    ]
}


def document(quotas: Sequence[Quota]) -> dict[str, Any]:
    """What the route answers and `hasat quota --json` prints."""
    answer = QuotasAnswer.model_validate({"upstreams": list(quotas)}, from_attributes=True)
    return answer.model_dump(mode="json", by_alias=True)


@router.get("/quota", summary="What is left", responses=declare_responses(_EXAMPLE, DatabaseError))
async def quota(store: StoreDep, settings: SettingsDep) -> QuotasAnswer:
    """Every window and lane of every upstream, who spent what today, and a forecast."""
    quotas = await read_all_quotas(store, settings)
    return QuotasAnswer.model_validate({"upstreams": quotas}, from_attributes=True)


@router.post(
    "/quota/{upstream}/reopen",
    summary="Reopen a day",
    dependencies=[audited("quota.reopen")],
    responses=declare_responses({"reopened": True}, NotFoundError, DatabaseError),
)
async def reopen_quota(upstream: str, store: StoreDep) -> dict[str, bool]:
    """Ask an upstream again although it responded that its day is used up.

    What it stated about its limits today is void until it states it again. `reopened` is false if
    the day was open.
    """
    await read_quota(store, upstream)
    return {"reopened": await reopen(store, upstream)}
