"""Standings, top scorers, injuries and team statistics: only where something can have changed."""

from datetime import timedelta
from typing import Final

from hasat.sources.football.asking import Api
from hasat.sources.football.progress import Progress, load_progress, save_progress
from hasat.sources.football.seasons import Season, followed_seasons, last_asked, note_asked
from hasat.sources.football.states import FINISHED
from hasat.store.statements import statement

STANDINGS_BACKFILL: Final = "standings_backfill_league_season"
_ROOM: Final = "hasat.sources.football"
# A little less than the hour between two runs.
_INJURIES_AGE = timedelta(minutes=50)
_SEASONS_OF_INJURIES_A_RUN: Final = 10


async def standings(api: Api) -> None:
    seasons = [one for one in await followed_seasons(api) if one.has("standings")]
    await _where_matches_ended(api, "standings", seasons)


async def top_scorers(api: Api) -> None:
    seasons = [one for one in await followed_seasons(api) if one.has("top_scorers")]
    await _where_matches_ended(api, "players/topscorers", seasons)


async def standings_backfill(api: Api) -> None:
    """The tables of each season, once, whether or not a finished match is known."""
    known = await load_progress(api.store, STANDINGS_BACKFILL)
    due = [
        season
        for season in await followed_seasons(api, with_last=True)
        if season.has("standings")
        and not known.get((season.league_id, season.year), Progress()).completed
    ]
    for season in due[: api.settings.backfill.standings_max_tasks_per_run]:
        answered = await _ask_season(api, "standings", season)
        error = None if answered else "the API did not say"
        progress = Progress(season.start, None, answered, error)
        await save_progress(api.store, STANDINGS_BACKFILL, season.league_id, season.year, progress)


async def injuries(api: Api) -> None:
    """Who misses a match of today or tomorrow; a season's injuries so far are asked for once."""
    seasons = [one for one in await followed_seasons(api) if one.has("injuries")]
    asked = await last_asked(api.store, "injuries")
    if api.settings.injuries_fetch_mode == "per_tracked_leagues":
        for season in seasons:
            await _ask_season(api, "injuries", season)
        return
    if not seasons:
        return
    unknown = [one for one in seasons if (one.league_id, one.year, 0) not in asked]
    for season in unknown[:_SEASONS_OF_INJURIES_A_RUN]:
        await _ask_season(api, "injuries", season)
    leagues = {season.league_id for season in seasons}
    for shift in (0, 1):
        day = (api.now + timedelta(days=shift)).date()
        last = asked.get((0, day.toordinal(), 0))
        if last is None or api.now - last >= _INJURIES_AGE:
            answer = await api.ask("injuries", date=str(day))
            await api.load(answer, leagues=leagues)
            if answer is not None:
                await note_asked(api.store, "injuries", 0, day.toordinal())


async def team_statistics(api: Api) -> None:
    """The season of every team that has played since it was last asked for."""
    seasons = [one for one in await followed_seasons(api) if one.has("standings")]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            statement(_ROOM, "teams_due"),
            {
                "leagues": [season.league_id for season in seasons],
                "seasons": [season.year for season in seasons],
                "finished": list(FINISHED),
                "before": api.now - timedelta(hours=api.settings.team_stats.refresh_hours),
                "limit": api.settings.team_stats.max_tasks_per_run,
            },
        )
        due = await cursor.fetchall()
    for number, (league, season, team) in enumerate(due):
        await api.progress(number, len(due), "teams")
        answer = await api.ask("teams/statistics", league=league, season=season, team=team)
        await api.load(answer)
        if answer is not None:
            await note_asked(api.store, "teams/statistics", league, season, team)


async def _where_matches_ended(api: Api, endpoint: str, seasons: list[Season]) -> None:
    """Ask for those seasons of which a match ended, or was corrected, since the last time."""
    asked = await last_asked(api.store, endpoint)
    async with api.store.connection() as conn:
        cursor = await conn.execute(statement(_ROOM, "last_ended"), {"finished": list(FINISHED)})
        ended = {(league, season): at for league, season, at in await cursor.fetchall()}
    for number, season in enumerate(seasons):
        pair = (season.league_id, season.year)
        last = asked.get((*pair, 0))
        if pair in ended and (last is None or ended[pair] > last):
            await api.progress(number, len(seasons), f"league {season.league_id}")
            await _ask_season(api, endpoint, season)


async def _ask_season(api: Api, endpoint: str, season: Season) -> bool:
    answer = await api.ask(endpoint, league=season.league_id, season=season.year)
    await api.load(answer)
    if answer is not None:
        await note_asked(api.store, endpoint, season.league_id, season.year)
    return answer is not None
