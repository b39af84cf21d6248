"""What hardly ever changes: time zones, countries, leagues, the teams of a season."""

from hasat.sources.football.asking import Api
from hasat.sources.football.seasons import Season, followed_seasons, note_asked
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"


async def timezones(api: Api) -> None:
    await api.load(await api.ask("timezone"))


async def countries(api: Api) -> None:
    await api.load(await api.ask("countries"))


async def leagues(api: Api) -> None:
    """All leagues, whenever this is asked for."""
    await api.load(await api.ask("leagues"))
    await note_asked(api.store, "leagues", 0, 0)


async def teams(api: Api) -> None:
    """The teams of every followed season that are not known yet."""
    for season in await followed_seasons(api):
        await ensure_teams(api, season)


async def ensure_teams(api: Api, season: Season) -> None:
    """Ask for the teams of a season, once."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT FROM core.team_bootstrap_progress"
            " WHERE league_id = %s AND season = %s AND completed",
            (season.league_id, season.year),
        )
        if await cursor.fetchone() is not None:
            return
    answer = await api.ask("teams", league=season.league_id, season=season.year)
    await api.load(answer)
    async with api.store.connection() as conn:
        await conn.execute(
            statement(_ROOM, "note_teams"),
            {
                "league": season.league_id,
                "season": season.year,
                "completed": answer is not None,
                "error": None if answer is not None else "the API did not say",
            },
        )
