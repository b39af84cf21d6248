"""The followed seasons: their coverage, requests made for them and progress of backfills."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from hasat.messages import msg
from hasat.sources.football.client import FootballClient, load_refusals, record_refusal
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_LEAGUES_AGE = timedelta(hours=20)
# Refusals depend on the plan, which rarely changes.
_REFUSED_COOLDOWN = timedelta(days=1)
RequestTimes = dict[tuple[int, int, int], datetime]
UNREADABLE = "the response cannot be read"


@dataclass(frozen=True)
class Season:
    """A season of a league, with its dates and coverage if /leagues lists it."""

    league_id: int
    year: int
    start: date | None = None
    end: date | None = None
    coverage: Mapping[str, Any] | None = None
    is_followed: bool = True
    """Whether it is the followed season, not the one before it."""

    @property
    def pair(self) -> tuple[int, int]:
        return self.league_id, self.year

    def has(self, *path: str) -> bool:
        """Whether the API covers something; True if it does not say."""
        found: Any = self.coverage
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return True if found is None else bool(found)

    @property
    def has_details(self) -> bool:
        flags = ("events", "lineups", "statistics_fixtures", "statistics_players")
        return any(self.has("fixtures", flag) for flag in flags)


async def followed_seasons(api: FootballClient, *, with_previous: bool = False) -> list[Season]:
    """Return the followed seasons, and with `with_previous` the listed seasons before them.

    A season that the operator named is the only one.
    """
    await ensure_leagues(api)
    wanted = [(league.id, league.season) for league in await api.leagues()]
    if not wanted and not api.warnings:
        api.report_idle(msg("No league is followed. Set tracked_leagues."))
    listed = await listed_seasons(api.store, [league for league, _ in wanted])
    found = [listed.get(pair, Season(*pair)) for pair in wanted]
    await _warn_unlisted(api, [pair for pair in wanted if pair not in listed], listed)
    if with_previous and api.params.get("only_season") is None:
        before = [(league, year - 1) for league, year in wanted if (league, year - 1) not in wanted]
        found += [
            Season(**{**vars(listed[pair]), "is_followed": False})
            for pair in before
            if pair in listed
        ]
    return found


def covered_seasons(
    api: FootballClient, seasons: Sequence[Season], name: str, *flags: str
) -> list[Season]:
    """Return the seasons that the API covers; a named season is always among them."""
    found = [one for one in seasons if api.is_named or one.has(*flags)]
    if seasons and not found:
        api.report_idle(msg("The API has no {name} for the followed seasons.", name=name))
    return found


async def ensure_matches(api: FootballClient, seasons: Sequence[Season]) -> None:
    """Fetch the matches of named seasons that have none in the mirror: other jobs need them."""
    if not api.is_named:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute("SELECT DISTINCT league_id, season FROM core.fixtures")
        known = set(await cursor.fetchall())
    for season in seasons:
        if season.pair not in known:
            await api.load(await api.fetch("fixtures", league=season.league_id, season=season.year))


async def ensure_leagues(api: FootballClient) -> None:
    """Fetch the list of leagues about once a day: one request for all of them."""
    requests = await last_requests(api, "leagues")
    if (0, 0, 0) not in requests or api.now - requests[0, 0, 0] > _LEAGUES_AGE:
        await fetch_leagues(api)


async def fetch_leagues(api: FootballClient) -> None:
    response = await api.fetch("leagues")
    loaded = await api.load(response)
    await record_request(api, response if loaded else None, "leagues", 0, 0)


async def _warn_unlisted(
    api: FootballClient, unlisted: Sequence[tuple[int, int]], listed: Iterable[tuple[int, int]]
) -> None:
    """Warn about followed seasons that the API does not list: typing errors or future seasons."""
    if not unlisted:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute("SELECT FROM core.leagues LIMIT 1")
        if await cursor.fetchone() is None:
            return
    for league, year in unlisted:
        years = [known for number, known in listed if number == league]
        if years:
            api.warn(
                msg(
                    "The API does not list season {year} of league {league}; its latest season is"
                    " {latest}.",
                    league=league,
                    year=year,
                    latest=max(years),
                )
            )
        else:
            api.warn(
                msg(
                    "The API does not list league {league} (season {year}).",
                    league=league,
                    year=year,
                )
            )


async def listed_seasons(store: Store, leagues: Sequence[int]) -> dict[tuple[int, int], Season]:
    """Return the seasons of leagues as the API lists them."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "listed_seasons"), {"leagues": list(leagues)}
        )
        rows = await cursor.fetchall()
    return {(league, year): Season(league, year, *rest) for league, year, *rest in rows}


async def last_requests(api: FootballClient, endpoint: str) -> RequestTimes:
    """Return when an endpoint was last requested, by league, season and team.

    A recent refusal counts as a request.
    """
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "last_requests"),
            {"endpoint": endpoint, "refused_since": refusals_since(api)},
        )
        return {(league, season, team): at for league, season, team, at in await cursor.fetchall()}


async def record_request(
    api: FootballClient,
    response: ApiResponse | None,
    endpoint: str,
    league: int,
    season: int,
    team: int = 0,
) -> None:
    """Record that a request succeeded, or was refused, just now."""
    if response is None:
        await record_refused(api, endpoint, league, season, team)
        return
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "record_request"),
            {"endpoint": endpoint, "league": league, "season": season, "team": team},
        )


async def record_refused(
    api: FootballClient, endpoint: str, league: int, season: int, team: int = 0
) -> None:
    """Record a refusal of the last request; a broken response is not recorded."""
    if api.refusal is not None:
        await record_refusal(api.store, endpoint, league, season, team)


async def recent_refusals(
    api: FootballClient, endpoint: str, cooldown: timedelta = _REFUSED_COOLDOWN
) -> set[tuple[int, int]]:
    """Return the leagues and seasons that an endpoint refused recently."""
    return await load_refusals(api.store, endpoint, refusals_since(api, cooldown))


def refusals_since(api: FootballClient, cooldown: timedelta = _REFUSED_COOLDOWN) -> datetime:
    """Return the time since which refusals count; none count in a manual run."""
    return api.now if api.is_manual else api.now - cooldown


@dataclass(frozen=True)
class Progress:
    """A backfill: the mirror has everything from `first_date` to the day before `next_date`."""

    first_date: date | None = None
    next_date: date | None = None
    completed: bool = False
    last_error: str | None = None
    updated_at: datetime | None = None

    def reaches(self, start: date | None, end: date | None) -> bool:
        """Whether it covers a season, whose dates may have moved."""
        early = start is None or (self.first_date is not None and self.first_date <= start)
        late = end is None or (self.next_date is not None and self.next_date > end)
        return early and late


async def load_progress(store: Store, job: str) -> dict[tuple[int, int], Progress]:
    """Return the progress of a job's backfill by league and season."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT league_id, season, first_date, next_date, completed, last_error, updated_at"
            " FROM core.backfill_progress WHERE job = %s",
            [job],
        )
        return {
            (league, season): Progress(*rest) for league, season, *rest in await cursor.fetchall()
        }


async def save_progress(
    store: Store, job: str, league: int, season: int, progress: Progress
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "save_progress"),
            {"job": job, "league": league, "season": season, **vars(progress)},
        )
