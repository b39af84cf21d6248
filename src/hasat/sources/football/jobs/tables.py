"""Jobs for standings, top scorers, injuries and team statistics that may have changed."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from hasat.messages import msg
from hasat.sources.football.client import FootballClient, only_league
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
from hasat.sources.football.states import FINISHED
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
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_DAYS_AHEAD: Final = 7
# What these may cost of a day's requests: results come first on a small plan.
_INJURIES_SHARE: Final = 0.05
_STATISTICS_SHARE: Final = 0.1
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
    """Fetch injuries for matches of the coming days, and those of a whole season once a week.

    A day is one request for all leagues. For fewer leagues than that takes, each season is fetched
    instead. On a small plan there is more time between two rounds.
    """
    seasons = covered_seasons(api, await followed_seasons(api), msg("injuries"), "injuries")
    if not seasons:
        return
    if api.is_named or only_league(api.context) is not None:
        # A day would be recorded as fetched for all leagues.
        for season in seasons:
            await _fetch_season(api, "injuries", season)
        return
    requests = await last_requests(api, "injuries")

    def is_due(league: int, season: int, age: timedelta) -> bool:
        last = requests.get((league, season, 0))
        return last is None or api.now - last >= age

    leagues = {season.league_id for season in seasons}
    today = api.now.astimezone(UTC).date()
    near = [today, today + timedelta(days=1)]
    ahead = await _days_ahead(api, leagues, near[-1])
    by_league = api.settings.injuries_fetch_mode == "per_tracked_leagues"
    if by_league or len(seasons) <= len(near):
        age = await api.interval(len(seasons), _INJURIES_SHARE, _INJURIES_AGE)
        again = by_league and api.is_manual
        due, days = [one for one in seasons if again or is_due(*one.pair, age)], []
    else:
        near_age = await api.interval(len(near), _INJURIES_SHARE / 2, _INJURIES_AGE)
        ahead_age = await api.interval(len(ahead), _INJURIES_SHARE / 2, _INJURIES_AHEAD_AGE)
        due = [one for one in seasons if is_due(*one.pair, _SEASON_OF_INJURIES_AGE)]
        due.sort(key=lambda one: (*one.pair, 0) in requests)
        due = due[:_SEASONS_OF_INJURIES_A_RUN]
        days = [day for day in near if is_due(0, day.toordinal(), near_age)]
        days += [day for day in ahead if is_due(0, day.toordinal(), ahead_age)]
    if not due and not days:
        api.report_idle(msg("All injuries of the coming days were fetched recently."))
    for season in due:
        await _fetch_season(api, "injuries", season)
    for day in days:
        response = await api.fetch("injuries", date=str(day))
        loaded = await api.load(response, leagues=leagues)
        await record_request(api, response if loaded else None, "injuries", 0, day.toordinal())


async def _days_ahead(api: FootballClient, leagues: Collection[int], after: date) -> list[date]:
    """Return the days of the coming week on which a followed league plays."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "days_of_matches"),
            {
                "leagues": sorted(leagues),
                "after": after,
                "until": after + timedelta(days=_DAYS_AHEAD - 1),
            },
        )
        return [day for (day,) in await cursor.fetchall()]


async def team_statistics(api: FootballClient) -> None:
    """Fetch the season of every team that has played since the last fetch.

    A scheduled run waits until the API has counted the match; a manual run does not.
    """
    seasons = covered_seasons(api, await followed_seasons(api), msg("team statistics"), "standings")
    await ensure_matches(api, seasons)
    allowed = int(_STATISTICS_SHARE * await api.day_limit())
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
                "allowed": None if api.is_manual else allowed,
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
    due.sort(key=lambda season: requests.get((*season.pair, 0), _LONG_AGO))
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
    due = due[: _max_leagues(api)]
    for number, season in enumerate(due):
        await api.progress(number, len(due), msg("league {league_id}", league_id=season.league_id))
        await _fetch_season(api, endpoint, season)


def _max_leagues(api: FootballClient) -> int | None:
    """Return `mode.max_leagues_per_run` of the original's job files; None if nothing limits a run.

    Leagues that one run leaves are due in the next.
    """
    limit = api.params.get("mode", {}).get("max_leagues_per_run")
    return limit if isinstance(limit, int) and limit > 0 and not api.is_named else None


async def _fetch_season(api: FootballClient, endpoint: str, season: Season) -> bool:
    response = await api.fetch(endpoint, league=season.league_id, season=season.year)
    loaded = await api.load(response)
    await record_request(api, response if loaded else None, endpoint, season.league_id, season.year)
    return response is not None
