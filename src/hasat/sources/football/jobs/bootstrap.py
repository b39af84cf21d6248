"""Jobs for data that rarely changes: time zones, countries, leagues, teams and new seasons."""

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
    """Fetch time zones and countries if there are none, without waiting for the monthly job."""
    if api.is_manual or not api.settings.bootstrap_static_on_start:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT EXISTS (SELECT FROM core.timezones), EXISTS (SELECT FROM core.countries)"
        )
        row = await cursor.fetchone()
    assert row is not None
    for is_there, endpoint in zip(row, ("timezone", "countries"), strict=True):
        # An empty response is not requested again before the monthly job.
        if not is_there and not await last_requests(api, endpoint):
            await _fetch_all(api, endpoint)


async def _fetch_all(api: FootballClient, endpoint: str) -> None:
    response = await api.fetch(endpoint)
    loaded = await api.load(response)
    await record_request(api, response if loaded else None, endpoint, 0, 0)


async def leagues(api: FootballClient) -> None:
    """Fetch all leagues."""
    await fetch_leagues(api)


async def teams(api: FootballClient) -> None:
    """Fetch the teams of followed seasons without teams, or of the named season."""
    seasons = await followed_seasons(api)
    fetched = [await ensure_teams(api, season, again=api.is_named) for season in seasons]
    if seasons and not any(fetched):
        api.report_idle(msg("The teams of all followed seasons are known."))


async def ensure_teams(api: FootballClient, season: Season, *, again: bool = False) -> bool:
    """Fetch the teams of a season once; return whether a request was sent."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT FROM core.team_bootstrap_progress"
            " WHERE league_id = %s AND season = %s AND completed",
            (season.league_id, season.year),
        )
        if await cursor.fetchone() is not None and not again:
            return False
    response = await api.fetch("teams", league=season.league_id, season=season.year)
    loaded = await api.load(response)
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "record_teams"),
            {
                "league": season.league_id,
                "season": season.year,
                "completed": loaded,
                "error": None if loaded else api.refusal or UNREADABLE,
            },
        )
    return True


async def watch_rollover(api: FootballClient) -> None:
    """Warn about followed leagues that have started a newer season."""
    await ensure_leagues(api)
    leagues = await api.leagues()
    wanted = {one.id: max(two.season for two in leagues if two.id == one.id) for one in leagues}
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.sources.football", "current_seasons"), {"leagues": list(wanted)}
        )
        rows = await cursor.fetchall()
    if leagues and all(year <= wanted[league] for league, _, year in rows):
        api.report_idle(msg("No followed league has started a new season."))
    for league, name, year in rows:
        if year > wanted[league]:
            api.warn(
                msg(
                    "{name} (id {league}) has started season {year}, but season {wanted} is "
                    "followed. Update tracked_leagues.",
                    name=name,
                    league=league,
                    year=year,
                    wanted=wanted[league],
                )
            )
