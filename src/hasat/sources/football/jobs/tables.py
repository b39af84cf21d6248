"""Jobs for standings, top scorers, injuries and team statistics that may have changed."""

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
# The API updates these after a match: tables usually within an hour, scorers several times a week,
# team statistics twice a day.
_TABLES_SETTLE: Final = tuple(timedelta(hours=later) for later in (1, 12, 36, 60))
_SCORERS_SETTLE: Final = tuple(timedelta(hours=later) for later in (1, 24, 72))
_STATISTICS_SETTLE: Final = timedelta(hours=12)
# A little less than the time between two runs; the API updates injuries every four hours.
_INJURIES_AGE: Final = timedelta(minutes=50)
_INJURIES_AHEAD_AGE: Final = timedelta(hours=3, minutes=50)
_DAYS_AHEAD: Final = 7
_SEASON_OF_INJURIES_AGE: Final = timedelta(days=7)
_SEASONS_OF_INJURIES_A_RUN: Final = 10


async def standings(api: FootballClient) -> None:
    seasons = covered_seasons(api, await followed_seasons(api), msg("standings"), "standings")
    await _refresh_after_matches(api, "standings", seasons, _TABLES_SETTLE)


async def top_scorers(api: FootballClient) -> None:
    seasons = covered_seasons(api, await followed_seasons(api), msg("top scorers"), "top_scorers")
    await _refresh_after_matches(api, "players/topscorers", seasons, _SCORERS_SETTLE)


async def standings_backfill(api: FootballClient) -> None:
    """Fetch the tables of each season once, even if no finished match is known."""
    known = await load_progress(api.store, STANDINGS_BACKFILL)
    refused = await recent_refusals(api, "standings")
    seasons = covered_seasons(
        api, await followed_seasons(api, with_previous=True), msg("standings"), "standings"
    )
    due = [
        season
        for season in seasons
        if api.is_named
        or not (known.get(season.pair, Progress()).completed or season.pair in refused)
    ]
    if seasons and not due:
        api.report_idle(msg("The tables of all seasons are known, or were refused recently."))
    limit = None if api.is_named else api.settings.backfill.standings_max_tasks_per_run
    for season in due[:limit]:
        received = await _fetch_season(api, "standings", season)
        error = None if received else api.refusal or UNREADABLE
        progress = Progress(season.start, None, received, error)
        await save_progress(api.store, STANDINGS_BACKFILL, season.league_id, season.year, progress)


async def injuries(api: FootballClient) -> None:
    """Fetch injuries for matches of the coming days, and those of a whole season once a week."""
    seasons = covered_seasons(api, await followed_seasons(api), msg("injuries"), "injuries")
    if not seasons:
        return
    # For one league fetch its season: a day would be recorded as fetched for all leagues.
    one_by_one = api.settings.injuries_fetch_mode == "per_tracked_leagues"
    if one_by_one or api.is_named or only_league(api.context) is not None:
        for season in seasons:
            await _fetch_season(api, "injuries", season)
        return
    requests = await last_requests(api, "injuries")

    def is_due(league: int, season: int, age: timedelta) -> bool:
        last = requests.get((league, season, 0))
        return last is None or api.now - last >= age

    due = [one for one in seasons if is_due(*one.pair, _SEASON_OF_INJURIES_AGE)]
    due.sort(key=lambda one: (*one.pair, 0) in requests)
    for season in due[:_SEASONS_OF_INJURIES_A_RUN]:
        await _fetch_season(api, "injuries", season)
    leagues = {season.league_id for season in seasons}
    days = [
        day for day, age in await _days_of_injuries(api, leagues) if is_due(0, day.toordinal(), age)
    ]
    if not due and not days:
        api.report_idle(msg("All injuries of the coming days were fetched within the hour."))
    for day in days:
        response = await api.fetch("injuries", date=str(day))
        loaded = await api.load(response, leagues=leagues)
        await record_request(api, response if loaded else None, "injuries", 0, day.toordinal())


async def _days_of_injuries(
    api: FootballClient, leagues: Collection[int]
) -> list[tuple[date, timedelta]]:
    """Return the days to fetch and the maximum age of each: days further ahead change less."""
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
    """Fetch the season of every team that has played since the last fetch.

    A scheduled run waits until the API has counted the match; a manual run does not.
    """
    seasons = covered_seasons(api, await followed_seasons(api), msg("team statistics"), "standings")
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
        api.report_idle(msg("No team has played since its statistics were last fetched."))
    for number, (league, season, team) in enumerate(due):
        await api.progress(number, len(due), msg("teams"))
        response = await api.fetch("teams/statistics", league=league, season=season, team=team)
        loaded = await api.load(response)
        await record_request(
            api, response if loaded else None, "teams/statistics", league, season, team
        )


async def _refresh_after_matches(
    api: FootballClient, endpoint: str, seasons: Sequence[Season], settles: Sequence[timedelta]
) -> None:
    """Fetch the seasons in which a match ended or was corrected, after the times in `settles`.

    A manual run and `at_once` do not wait. A manual run also fetches seasons never fetched before,
    even if no finished match is known, and always a named one.
    """
    at_once = api.is_manual or api.params.get("at_once", False)
    checks = [timedelta(0), *settles] if at_once else settles
    requests = await last_requests(api, endpoint)
    refused = await recent_refusals(api, endpoint)
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "last_ended"), {"finished": list(FINISHED)}
        )
        ended = {(league, season): times for league, season, *times in await cursor.fetchall()}

    def is_due(season: Season) -> bool:
        last = requests.get((*season.pair, 0))
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
            msg("No match has ended since the last request for /{endpoint}.", endpoint=endpoint)
            if ended.keys() & {season.pair for season in seasons}
            else msg("No finished match is known yet for /{endpoint}.", endpoint=endpoint)
        )
    if recently := refused & {season.pair for season in seasons}:
        api.report_idle(
            msg(
                "The API refused /{endpoint} for {count} seasons less than a day ago.",
                endpoint=endpoint,
                count=len(recently),
            )
        )
    for number, season in enumerate(due):
        await api.progress(number, len(due), msg("league {league_id}", league_id=season.league_id))
        await _fetch_season(api, endpoint, season)


async def _fetch_season(api: FootballClient, endpoint: str, season: Season) -> bool:
    response = await api.fetch(endpoint, league=season.league_id, season=season.year)
    loaded = await api.load(response)
    await record_request(api, response if loaded else None, endpoint, season.league_id, season.year)
    return response is not None
