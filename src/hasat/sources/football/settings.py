"""The settings of the source `football`, and the limits of its upstream."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from hasat.budget import Lane, Upstream
from hasat.messages import msg
from hasat.settings import LegacyNames, Section, Settings, types
from hasat.sources.football.legacy import LEGACY


class League(Section):
    """A tracked competition in one season, by id or by a unique name."""

    id: types.Id | None = None
    name: str = ""
    country: str = ""
    season: types.Year

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.id is None and not self.name.strip():
            raise ValueError("a league needs an id or a name.")
        return self


class RateLimiter(Section):
    """The plan's limits; lower limits in the API's headers take precedence."""

    token_bucket_per_minute: types.Count = Field(
        default=300, description="Requests that are never exceeded in a minute."
    )
    minute_soft_limit: types.Count = Field(
        default=280, description="Requests in a minute to work at."
    )
    minute_limit: types.Count | None = Field(
        default=None,
        description="Requests in a minute that the plan allows, if fewer than the bucket's.",
    )
    daily_limit: int = Field(
        default=75_000, ge=1, le=10_000_000, description="Requests in a day that the plan allows."
    )
    emergency_stop_threshold: types.Requests | None = Field(
        default=None,
        description="Remaining requests at which all stops; default a tenth of the day.",
    )
    usage_target_percent: types.Percent = Field(
        default=90.0, description="Share of the day's requests to spend."
    )
    opening_minutes: int = Field(
        default=10,
        ge=0,
        le=120,
        description="Minutes after the day's start in which only urgent work asks.",
    )
    shadow: bool = Field(
        default=False, description="Only count, and note what would have been refused."
    )

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if (self.emergency_stop_threshold or 0) >= self.daily_limit:
            raise ValueError(
                "emergency_stop_threshold must be below daily_limit, or nothing is ever sent."
            )
        return self


class Backfill(Section):
    """Backfill of earlier seasons."""

    fixtures_mode: Literal["season", "windows"] = Field(
        default="season",
        description="A league's season in one request, or window by window as the original has it.",
    )
    fixtures_max_tasks_per_run: types.Count = Field(default=6, description="League seasons a run.")
    fixtures_max_pages_per_task: types.Count = Field(
        default=6, description="Windows a league season."
    )
    fixtures_window_days: types.Days = Field(default=30, description="Days a window covers.")
    standings_max_tasks_per_run: types.Count = Field(
        default=2, description="League seasons that a run of the standings backfill takes up."
    )


class Details(Section):
    """Players, events, statistics and line-ups of matches."""

    fetch_mode: Literal["by_ids", "per_fixture"] = Field(
        default="by_ids",
        description="Twenty matches a request, or four requests a match as the original has it.",
    )
    backfill_batch: types.Count = Field(
        default=25, description="Matches a run of the 90-day backfill."
    )
    season_backfill_batch: types.Count = Field(
        default=12, description="Matches a run of the backfill of whole seasons."
    )
    finalize_batch: types.Count = Field(default=50, description="Just finished matches a run.")
    lineups_window_batch: types.Count = Field(
        default=50, description="Matches about to begin a run, for their line-ups."
    )
    stale_minutes: types.Count = Field(
        default=15, description="Minutes before kick-off from which line-ups are asked for."
    )


class TeamStats(Section):
    """Statistics of teams."""

    max_tasks_per_run: types.Count = Field(default=50, description="Teams a run.")
    refresh_hours: types.Count = Field(
        default=24, description="Age at which a team is asked again."
    )


class Verification(Section):
    """Verification of inferred scores."""

    max_attempts: types.Count = Field(
        default=3, description="Questions before a match is left to rest."
    )
    cooldown_hours: types.Count = Field(default=24, description="Time between two such questions.")
    min_daily_quota: types.Requests = Field(
        default=50_000, description="Remaining requests below which nothing is verified."
    )


class FootballSettings(Section):
    """API-Football v3."""

    legacy: ClassVar[LegacyNames] = LEGACY

    api_key: types.Secret | None = Field(default=None, description="Your key for the API.")
    api_key_env: types.VariableName = Field(
        default="API_FOOTBALL_KEY", description="The environment variable that holds the key."
    )
    base_url: types.ApiUrl = Field(
        default="https://v3.football.api-sports.io", description="Where the API is."
    )
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=300, description="How long an answer may take."
    )
    default_timezone: types.Zone = Field(
        default="UTC", description="The zone in which the API is asked for a date."
    )
    change_retention_days: types.Days = Field(
        default=90, description="Retention of changes to matches, tables and players."
    )
    raw_retention_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Age at which a whole month of answers is moved to a Parquet file.",
    )
    tracked_leagues: tuple[League, ...] = Field(
        default=(),
        description="The competitions to follow: id and season of each, or name, country and "
        "season.",
    )
    fixtures_fetch_mode: Annotated[
        Literal["global_by_date", "per_tracked_leagues"],
        types.one_of(
            **{"global-by-date": "global_by_date", "per-tracked-leagues": "per_tracked_leagues"}
        ),
    ] = Field(
        default="global_by_date",
        description="One request a day for all leagues, or one for each league.",
    )
    injuries_fetch_mode: Annotated[
        Literal["global_by_date", "per_tracked_leagues"],
        types.one_of(
            **{"global-by-date": "global_by_date", "per-tracked-leagues": "per_tracked_leagues"}
        ),
    ] = Field(
        default="global_by_date",
        description="One request a day for all leagues, or one for each league.",
    )
    collect: tuple[str, ...] = Field(
        default=(),
        description="Optional data to fetch, by the names that `hasat football price` lists.",
    )
    only_league_id: types.Id | None = Field(
        default=None, description="Restricts jobs to this league; for manual runs."
    )
    bootstrap_static_on_start: bool = Field(
        default=True, description="Ask for countries and time zones at once when there are none."
    )
    rate_limiter: RateLimiter = RateLimiter()
    backfill: Backfill = Backfill()
    details: Details = Details()
    team_stats: TeamStats = TeamStats()
    verification: Verification = Verification()

    def without_effect(self) -> Sequence[str]:
        """Return which settings of the original have no effect."""
        windows = [
            f"football.backfill.{name}"
            for name in ("fixtures_window_days", "fixtures_max_pages_per_task")
            if name in self.backfill.model_fields_set
        ]
        if not windows or self.backfill.fixtures_mode == "windows":
            return ()
        return (
            msg(
                "{settings} has no effect: a season is one request. Set"
                " football.backfill.fixtures_mode to windows to fetch by windows.",
                settings=", ".join(windows),
            ),
        )

    @field_validator("collect")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if names:
            # Commands that do not need the declarations start without them.
            from hasat.sources.football.endpoints import OPTION_NAMES

            if unknown := [name for name in names if name not in OPTION_NAMES]:
                raise ValueError(f"{unknown[0]!r} is not one of {', '.join(OPTION_NAMES)}.")
        return names

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        seen = [(one.id, one.season) for one in self.tracked_leagues if one.id is not None]
        if twice := sorted({pair for pair in seen if seen.count(pair) > 1}):
            named = ", ".join(f"{league} in season {season}" for league, season in twice)
            raise ValueError(f"tracked_leagues names a league twice: {named}.")
        return self


# Requests a lane needs per day until the ledger has real figures: estimates of the original
# collector for its plan. They are scaled down for a smaller plan, which follows fewer leagues.
_PLAN = 75_000
# A followed league needs about this many to know its results in time on a match day, and results
# may have this share of a small plan.
_FINALISE_A_LEAGUE, _FINALISE_SHARE = 20, 0.5
_FINALISE, _DAILY, _DETAILS = 1_500, 2_500, 5_000
_GUARD = 50_000


def football_upstream(settings: Settings) -> Upstream:
    """Return the limits of API-Football: per minute, and per day from midnight UTC."""
    football = settings.section(FootballSettings)
    limits = football.rate_limiter
    bucket = limits.token_bucket_per_minute
    hard = min(bucket, limits.minute_limit or bucket)
    reserve, of_plan = limits.emergency_stop_threshold, 1.0
    if reserve is None:
        reserve, of_plan = limits.daily_limit // 10, 0.1
    lane = partial(Lane, keep=reserve, keep_share=of_plan)
    share = min(1.0, limits.daily_limit / _PLAN)
    a_match_day = _FINALISE_A_LEAGUE * len(football.tracked_leagues)
    finalise = max(
        round(_FINALISE * share), min(a_match_day, round(_FINALISE_SHARE * limits.daily_limit))
    )
    # The default of 50,000 is two thirds of the original's plan and scales with the plan; any other
    # value is absolute.
    guard = football.verification.min_daily_quota
    of_guard = 2 / 3 if guard == _GUARD else 1.0
    verify = lane("verify", paced=True, share=0.05)
    if reserve < min(guard, int(limits.daily_limit * of_guard)):
        verify = replace(verify, keep=guard, keep_share=of_guard)
    return Upstream(
        "football",
        zone="UTC",
        day_limit=limits.daily_limit,
        target=limits.usage_target_percent / 100,
        minute_limit=min(limits.minute_soft_limit, hard),
        minute_hard=hard,
        opening_seconds=limits.opening_minutes * 60,
        shadow=limits.shadow,
        lanes=(
            lane("finalise", needs=finalise, early=True),
            lane("daily", needs=round(_DAILY * share), early=True),
            lane("details", needs=round(_DETAILS * share)),
            lane("backfill", paced=True),
            verify,
        ),
    )
