"""What hardly ever changes: time zones, countries, leagues, the teams of a season."""

from hasat.sources.football.asking import Api
from hasat.sources.football.progress import UNREADABLE
from hasat.sources.football.seasons import (
    Season,
    ask_leagues,
    followed_seasons,
    last_asked,
    note_asked,
)
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"


async def timezones(api: Api) -> None:
    await _ask_all(api, "timezone")


async def countries(api: Api) -> None:
    await _ask_all(api, "countries")


async def ensure_static(api: Api) -> None:
    """What is asked for once a month, now if there is none yet: the first month is long."""
    if api.by_hand or not api.settings.bootstrap_static_on_start:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT EXISTS (SELECT FROM core.timezones), EXISTS (SELECT FROM core.countries)"
        )
        row = await cursor.fetchone()
    assert row is not None
    for is_there, endpoint in zip(row, ("timezone", "countries"), strict=True):
        # Once: what is said to be nothing is asked for again in its month.
        if not is_there and not await last_asked(api, endpoint):
            await _ask_all(api, endpoint)


async def _ask_all(api: Api, endpoint: str) -> None:
    answer = await api.ask(endpoint)
    loaded = await api.load(answer)
    await note_asked(api, answer if loaded else None, endpoint, 0, 0)


async def leagues(api: Api) -> None:
    """All leagues, whenever this is asked for."""
    await ask_leagues(api)


async def teams(api: Api) -> None:
    """Ask for the teams of every followed season that are not known yet, or that was named."""
    seasons = await followed_seasons(api)
    asked = [await ensure_teams(api, season, again=api.is_named) for season in seasons]
    if seasons and not any(asked):
        api.idle("The teams of all followed seasons are known.")


async def ensure_teams(api: Api, season: Season, *, again: bool = False) -> bool:
    """Ask for the teams of a season, once; return whether that was now."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT FROM core.team_bootstrap_progress"
            " WHERE league_id = %s AND season = %s AND completed",
            (season.league_id, season.year),
        )
        if await cursor.fetchone() is not None and not again:
            return False
    answer = await api.ask("teams", league=season.league_id, season=season.year)
    loaded = await api.load(answer)
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "note_teams"),
            {
                "league": season.league_id,
                "season": season.year,
                "completed": loaded,
                "error": None if loaded else api.refusal or UNREADABLE,
            },
        )
    return True
