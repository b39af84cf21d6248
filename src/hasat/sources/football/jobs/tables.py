"""Standings, top scorers, injuries and team statistics: only where something can have changed."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, timedelta
from typing import Final

from hasat.messages import msg
from hasat.sources.football.client import FootballClient, only_league
from hasat.sources.football.datasets import FINISHED
from hasat.sources.football.jobs.seasons import (
    UNREADABLE,
    Progress,
    Season,
    covered_seasons,
    ensure_matches,
    followed_seasons,
    last_requests,
    load_progress,
    recent_refusals,
    record_request,
    refusals_since,
    save_progress,
)
from hasat.store.queries import load_query

STANDINGS_BACKFILL: Final = "standings_backfill_league_season"
_PACKAGE: Final = "hasat.sources.football"
# What follows from a match is published later: tables within an hour as a rule, scorers several
# times a week, teams' statistics twice a day.
_TABLES_SETTLE: Final = tuple(timedelta(hours=later) for later in (1, 12, 36, 60))
_SCORERS_SETTLE: Final = tuple(timedelta(hours=later) for later in (1, 24, 72))
_STATISTICS_SETTLE: Final = timedelta(hours=12)
# A little less than the hours between two runs; the API itself looks every four hours.
_INJURIES_AGE: Final = timedelta(minutes=50)
_INJURIES_AHEAD_AGE: Final = timedelta(hours=3, minutes=50)
_DAYS_AHEAD: Final = 7
_SEASON_OF_INJURIES_AGE: Final = timedelta(days=7)
_SEASONS_OF_INJURIES_A_RUN: Final = 10


async def standings(api: FootballClient) -> None:
    seasons = covered_seasons(api, await followed_seasons(api), "standings", "standings")
    await _refresh_after_matches(api, "standings", seasons, _TABLES_SETTLE)


async def top_scorers(api: FootballClient) -> None:
    seasons = covered_seasons(api, await followed_seasons(api), "top scorers", "top_scorers")
    await _refresh_after_matches(api, "players/topscorers", seasons, _SCORERS_SETTLE)


async def standings_backfill(api: FootballClient) -> None:
    """The tables of each season, once, whether or not a finished match is known."""
    known = await load_progress(api.store, STANDINGS_BACKFILL)
    refused = await recent_refusals(api, "standings")
    seasons = covered_seasons(
        api, await followed_seasons(api, with_previous=True), "standings", "standings"
    )
    due = [
        season
        for season in seasons
        if api.is_named
        or not (known.get(season.pair, Progress()).completed or season.pair in refused)
    ]
    if seasons and not due:
        api.report_idle("The tables of all seasons are known, or were refused lately.")
    limit = None if api.is_named else api.settings.backfill.standings_max_tasks_per_run
    for season in due[:limit]:
        answered = await _fetch_season(api, "standings", season)
        error = None if answered else api.refusal or UNREADABLE
        progress = Progress(season.start, None, answered, error)
        await save_progress(api.store, STANDINGS_BACKFILL, season.league_id, season.year, progress)


async def injuries(api: FootballClient) -> None:
    """Who misses a match of these days; a whole season's injuries are asked for once a week."""
    seasons = covered_seasons(api, await followed_seasons(api), "injuries", "injuries")
    if not seasons:
        return
    # Of one league alone the season is asked for: a day would be taken as asked for all of them.
    one_by_one = api.settings.injuries_fetch_mode == "per_tracked_leagues"
    if one_by_one or api.is_named or only_league(api.context) is not None:
        for season in seasons:
            await _fetch_season(api, "injuries", season)
        return
    asked = await last_requests(api, "injuries")

    def is_due(league: int, season: int, age: timedelta) -> bool:
        last = asked.get((league, season, 0))
        return last is None or api.now - last >= age

    due = [one for one in seasons if is_due(*one.pair, _SEASON_OF_INJURIES_AGE)]
    due.sort(key=lambda one: (*one.pair, 0) in asked)
    for season in due[:_SEASONS_OF_INJURIES_A_RUN]:
        await _fetch_season(api, "injuries", season)
    leagues = {season.league_id for season in seasons}
    days = [
        day for day, age in await _days_of_injuries(api, leagues) if is_due(0, day.toordinal(), age)
    ]
    if not due and not days:
        api.report_idle("All injuries of these days were asked for within the hour.")
    for day in days:
        answer = await api.fetch("injuries", date=str(day))
        loaded = await api.load(answer, leagues=leagues)
        await record_request(api, answer if loaded else None, "injuries", 0, day.toordinal())


async def _days_of_injuries(
    api: FootballClient, leagues: Collection[int]
) -> list[tuple[date, timedelta]]:
    """Today and tomorrow every hour, and the days of matches ahead whenever the API has looked."""
    today = api.now.astimezone(UTC).date()
    near = [today, today + timedelta(days=1)]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "days_of_matches"),
            {
                "leagues": sorted(leagues),
                "after": near[-1],
                "until": today + timedelta(days=_DAYS_AHEAD),
            },
        )
        ahead = [day for (day,) in await cursor.fetchall()]
    return [*((day, _INJURIES_AGE) for day in near), *((day, _INJURIES_AHEAD_AGE) for day in ahead)]


async def team_statistics(api: FootballClient) -> None:
    """The season of every team that has played since it was last asked for.

    By the clock once that is counted; who asks by hand wants to know it now.
    """
    seasons = covered_seasons(api, await followed_seasons(api), "team statistics", "standings")
    await ensure_matches(api, seasons)
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "teams_due"),
            {
                "leagues": [season.league_id for season in seasons],
                "seasons": [season.year for season in seasons],
                "finished": list(FINISHED),
                "now": api.now,
                "settling": timedelta(0) if api.is_manual else _STATISTICS_SETTLE,
                "before": api.now - timedelta(hours=api.settings.team_stats.refresh_hours),
                "refused_since": refusals_since(api),
                "limit": None if api.is_named else api.settings.team_stats.max_tasks_per_run,
                "named": api.is_named,
            },
        )
        due = await cursor.fetchall()
    if seasons and not due:
        api.report_idle(
            "No team is known that has played since its statistics were last asked for."
        )
    for number, (league, season, team) in enumerate(due):
        await api.progress(number, len(due), msg("teams"))
        answer = await api.fetch("teams/statistics", league=league, season=season, team=team)
        loaded = await api.load(answer)
        await record_request(
            api, answer if loaded else None, "teams/statistics", league, season, team
        )


async def _refresh_after_matches(
    api: FootballClient, endpoint: str, seasons: Sequence[Season], settles: Sequence[timedelta]
) -> None:
    """Ask for those seasons of which a match ended, or was corrected, as that settles.

    A manual run does not wait for that, nor does `at_once`; it also asks for seasons that were
    never asked for, whether or not a finished match is known, and always for a named one.
    """
    at_once = api.is_manual or api.params.get("at_once", False)
    checks = [timedelta(0), *settles] if at_once else settles
    asked = await last_requests(api, endpoint)
    refused = await recent_refusals(api, endpoint)
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "last_ended"), {"finished": list(FINISHED)}
        )
        ended = {(league, season): times for league, season, *times in await cursor.fetchall()}

    def is_due(season: Season) -> bool:
        last = asked.get((*season.pair, 0))
        if api.is_named or (api.is_manual and last is None):
            return True
        if season.pair not in ended or season.pair in refused:
            return False
        news, known = ended[season.pair]
        settled = [] if news is None else [news + later for later in checks]
        return last is None or any(last < at <= api.now for at in (*settled, known or last))

    due = [season for season in seasons if is_due(season)]
    if seasons and not due:
        api.report_idle(
            f"No match is known that has ended since /{endpoint} was last asked."
            if ended.keys() & {season.pair for season in seasons}
            else f"No finished match is known yet, so /{endpoint} was not asked."
        )
    if lately := refused & {season.pair for season in seasons}:
        api.report_idle(
            f"The API refused /{endpoint} for {len(lately)} seasons less than a day ago."
        )
    for number, season in enumerate(due):
        await api.progress(number, len(due), msg("league {league_id}", league_id=season.league_id))
        await _fetch_season(api, endpoint, season)


async def _fetch_season(api: FootballClient, endpoint: str, season: Season) -> bool:
    answer = await api.fetch(endpoint, league=season.league_id, season=season.year)
    loaded = await api.load(answer)
    await record_request(api, answer if loaded else None, endpoint, season.league_id, season.year)
    return answer is not None
