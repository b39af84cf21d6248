"""A followed league that has begun a new season: told, never changed by itself."""

from hasat.messages import msg
from hasat.sources.football.asking import Api
from hasat.sources.football.seasons import ensure_leagues
from hasat.store.queries import load_query


async def watch(api: Api) -> None:
    """Warn about every tracked season that the API no longer calls current."""
    await ensure_leagues(api)
    leagues = await api.leagues()
    wanted = {one.id: max(two.season for two in leagues if two.id == one.id) for one in leagues}
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.sources.football", "current_seasons"), {"leagues": list(wanted)}
        )
        rows = await cursor.fetchall()
    if leagues and all(year <= wanted[league] for league, _, year in rows):
        api.idle("No followed league has begun a new season.")
    for league, name, year in rows:
        if year > wanted[league]:
            api.remark(
                msg(
                    "{name} (id {league}) has begun season {year}; season {wanted} is "
                    "followed. Set it in tracked_leagues.",
                    name=name,
                    league=league,
                    year=year,
                    wanted=wanted[league],
                )
            )
