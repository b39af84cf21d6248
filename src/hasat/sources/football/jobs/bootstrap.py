"""What hardly ever changes: time zones, countries, leagues, the teams of a season."""

from hasat.messages import msg
from hasat.sources.football.client import FootballClient
from hasat.sources.football.jobs.seasons import (
    UNREADABLE,
    Season,
    ensure_leagues,
    fetch_leagues,
    followed_seasons,
    last_requests,
    record_request,
)
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"


async def timezones(api: FootballClient) -> None:
    await _fetch_all(api, "timezone")


async def countries(api: FootballClient) -> None:
    await _fetch_all(api, "countries")


async def ensure_static(api: FootballClient) -> None:
    """What is asked for once a month, now if there is none yet: the first month is long."""
    if api.is_manual or not api.settings.bootstrap_static_on_start:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT EXISTS (SELECT FROM core.timezones), EXISTS (SELECT FROM core.countries)"
        )
        row = await cursor.fetchone()
    assert row is not None
    for is_there, endpoint in zip(row, ("timezone", "countries"), strict=True):
        # Once: what is said to be nothing is asked for again in its month.
        if not is_there and not await last_requests(api, endpoint):
            await _fetch_all(api, endpoint)


async def _fetch_all(api: FootballClient, endpoint: str) -> None:
    answer = await api.fetch(endpoint)
    loaded = await api.load(answer)
    await record_request(api, answer if loaded else None, endpoint, 0, 0)


async def leagues(api: FootballClient) -> None:
    """All leagues, whenever this is asked for."""
    await fetch_leagues(api)


async def teams(api: FootballClient) -> None:
    """Ask for the teams of every followed season that are not known yet, or that was named."""
    seasons = await followed_seasons(api)
    asked = [await ensure_teams(api, season, again=api.is_named) for season in seasons]
    if seasons and not any(asked):
        api.report_idle("The teams of all followed seasons are known.")


async def ensure_teams(api: FootballClient, season: Season, *, again: bool = False) -> bool:
    """Ask for the teams of a season, once; return whether that was now."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT FROM core.team_bootstrap_progress"
            " WHERE league_id = %s AND season = %s AND completed",
            (season.league_id, season.year),
        )
        if await cursor.fetchone() is not None and not again:
            return False
    answer = await api.fetch("teams", league=season.league_id, season=season.year)
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


async def watch_rollover(api: FootballClient) -> None:
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
        api.report_idle("No followed league has begun a new season.")
    for league, name, year in rows:
        if year > wanted[league]:
            api.warn(
                msg(
                    "{name} (id {league}) has begun season {year}; season {wanted} is "
                    "followed. Set it in tracked_leagues.",
                    name=name,
                    league=league,
                    year=year,
                    wanted=wanted[league],
                )
            )
