"""Response models of this source's MCP tools."""

from datetime import date as day
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from hasat.sources.tools import ToolResponse


class FixtureRecord(BaseModel):
    """A match as published, with inferences in separate fields."""

    fixture_id: int
    league_id: int | None
    league: str | None
    season: int | None
    round: str | None
    date: datetime | None
    status_short: str | None
    elapsed: int | None
    home_team_id: int | None
    home_team: str | None
    away_team_id: int | None
    away_team: str | None
    goals_home: int | None
    goals_away: int | None
    told_at: datetime | None = Field(description="When the API last reported it.")
    details_at: datetime | None
    inferred_status: str | None = Field(description="A guess, not a published state.")
    needs_score_verification: bool


class Fixtures(ToolResponse):
    more: bool = Field(description="Whether there are more matches.")
    items: list[FixtureRecord]


class Stale(ToolResponse):
    total: int
    by_status: dict[str, int]
    items: list[FixtureRecord]


class AutoFinished(ToolResponse):
    hours: float
    runs: int
    auto_finished: int = Field(description="Matches marked as probably finished.")
    settled_by_the_api: int = Field(description="Of these, reported by the API since.")
    still_inferred: int
    needs_score_verification: int
    oldest_inferred_at: datetime | None


class BackfillRecord(BaseModel):
    job: str
    league_id: int
    season: int
    first_date: day | None
    next_date: day | None
    completed: bool
    last_error: str | None
    updated_at: datetime


class Backfills(ToolResponse):
    completed: int
    total: int
    items: list[BackfillRecord]


class SyncTime(BaseModel):
    endpoint: str
    last_fetched_at: datetime


class SyncTimes(ToolResponse):
    items: list[SyncTime]


class ErrorCount(BaseModel):
    endpoint: str | None
    outcome: str
    requests: int


class ErrorSummary(ToolResponse):
    hours: float
    unreadable_elements: int
    items: list[ErrorCount]


class ErrorSample(BaseModel):
    at: datetime
    run: int | None
    origin: str
    reason: str
    content: str


class ErrorSamples(ToolResponse):
    items: list[ErrorSample]


class TrackedLeague(BaseModel):
    league_id: int
    name: str | None
    country: str | None
    type: str | None
    season: int
    coverage: dict[str, Any] | None = Field(description="null: the API does not list the season.")


class TrackedLeagues(ToolResponse):
    items: list[TrackedLeague]
    not_found: list[str] = Field(description="Why tracked names were not found.")


class LeagueRecord(ToolResponse):
    league_id: int
    name: str | None
    type: str | None
    country: str | None
    seasons: list[dict[str, Any]]


class Elements(ToolResponse):
    """Elements of a dataset as published."""

    total: int
    items: list[dict[str, Any]]


class CoverageRecord(BaseModel):
    """How much of a season's data the mirror has."""

    league_id: int
    league_name: str | None
    season: int
    endpoint: str
    covered: bool | None = Field(description="Whether the API has it; null if unknown.")
    expected_count: int | None = Field(
        description="For matches: the count in the API's last listing of the whole season."
    )
    actual_count: int
    count_coverage: float | None = Field(description="Percent; null if unknown.")
    last_update: datetime | None


class Coverage(ToolResponse):
    total: int
    items: list[CoverageRecord]


class EndpointCoverage(BaseModel):
    endpoint: str
    league_seasons: int
    complete: int = Field(description="Of these, complete.")
    unknown: int = Field(description="Of these, with an unknown expected count.")
    expected_count: int
    actual_count: int
    oldest_update: datetime | None


class CoverageSummary(ToolResponse):
    season: int | None
    items: list[EndpointCoverage]


class DetailStatus(ToolResponse):
    """The mirrored details of a match, and when the API last reported it."""

    fixture: FixtureRecord
    events: int
    lineups: int
    statistics: int
    players: int
