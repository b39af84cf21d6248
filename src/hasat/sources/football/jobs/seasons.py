"""Which seasons of which leagues are followed, and what the API says it has of them."""

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
# A plan is not changed every hour.
_REFUSED_RESTS = timedelta(days=1)
RequestTimes = dict[tuple[int, int, int], datetime]
UNREADABLE = "the answer could not be read"


@dataclass(frozen=True)
class Season:
    """A league's season; what `/leagues` says of it, where it says anything."""

    league_id: int
    year: int
    start: date | None = None
    end: date | None = None
    coverage: Mapping[str, Any] | None = None
    is_followed: bool = True
    """Whether it is the tracked season, not the one before it."""

    @property
    def pair(self) -> tuple[int, int]:
        return self.league_id, self.year

    def has(self, *path: str) -> bool:
        """Whether the API covers something; what it does not say is worth a try."""
        found: Any = self.coverage
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return True if found is None else bool(found)

    @property
    def has_details(self) -> bool:
        flags = ("events", "lineups", "statistics_fixtures", "statistics_players")
        return any(self.has("fixtures", flag) for flag in flags)

    @property
    def has_live(self) -> bool:
        """Whether matches are told while they are played; if not, results come up to 48 h later."""
        return self.has("fixtures", "events")


async def followed_seasons(api: FootballClient, *, with_previous: bool = False) -> list[Season]:
    """Return the tracked seasons, and with `with_last` those before them that the API lists.

    Where the operator named a season, it is the only one.
    """
    await ensure_leagues(api)
    wanted = [(league.id, league.season) for league in await api.leagues()]
    if not wanted and not api.warnings:
        api.report_idle("No league is followed; set tracked_leagues.")
    listed = await _listed(api.store, [league for league, _ in wanted])
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
    api: FootballClient, seasons: Sequence[Season], what: str, *flags: str
) -> list[Season]:
    """Return the seasons of which the API offers something; what is named is asked anyway."""
    found = [one for one in seasons if api.is_named or one.has(*flags)]
    if seasons and not found:
        api.report_idle(f"The API offers no {what} of the followed seasons.")
    return found


async def ensure_matches(api: FootballClient, seasons: Sequence[Season]) -> None:
    """Ask for the matches of named seasons that have none in the mirror: all else needs them."""
    if not api.is_named:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute("SELECT DISTINCT league_id, season FROM core.fixtures")
        known = set(await cursor.fetchall())
    for season in seasons:
        if season.pair not in known:
            await api.load(await api.fetch("fixtures", league=season.league_id, season=season.year))


async def ensure_leagues(api: FootballClient) -> None:
    """Know what the API has: one request for all leagues, about once a day."""
    asked = await last_requests(api, "leagues")
    if (0, 0, 0) not in asked or api.now - asked[0, 0, 0] > _LEAGUES_AGE:
        await fetch_leagues(api)


async def fetch_leagues(api: FootballClient) -> None:
    answer = await api.fetch("leagues")
    loaded = await api.load(answer)
    await record_request(api, answer if loaded else None, "leagues", 0, 0)


async def _warn_unlisted(
    api: FootballClient, unlisted: Sequence[tuple[int, int]], listed: Iterable[tuple[int, int]]
) -> None:
    """Say what is followed and not in the API's list: a slip, or a season to come."""
    if not unlisted:
        return
    async with api.store.connection() as conn:
        cursor = await conn.execute("SELECT FROM core.leagues LIMIT 1")
        if await cursor.fetchone() is None:
            return
    for league, year in unlisted:
        years = sorted(known for of, known in listed if of == league)
        has = f"seasons of league {league} up to {years[-1]}" if years else f"no league {league}"
        how = "named" if api.is_named else "followed"
        api.warn(
            msg(
                "League {league}, season {year}, is {how}, but the API lists {has}.",
                league=league,
                year=year,
                how=how,
                has=has,
            )
        )


async def _listed(store: Store, leagues: Sequence[int]) -> dict[tuple[int, int], Season]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "listed_seasons"), {"leagues": list(leagues)}
        )
        rows = await cursor.fetchall()
    return {(league, year): Season(league, year, *rest) for league, year, *rest in rows}


async def last_requests(api: FootballClient, endpoint: str) -> RequestTimes:
    """When an endpoint was last asked, or lately refused, by league, season and team."""
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "last_asked"),
            {"endpoint": endpoint, "refused_since": refusals_since(api)},
        )
        return {(league, season, team): at for league, season, team, at in await cursor.fetchall()}


async def record_request(
    api: FootballClient,
    answer: ApiResponse | None,
    endpoint: str,
    league: int,
    season: int,
    team: int = 0,
) -> None:
    """Remember that it was answered just now, or refused."""
    if answer is None:
        await record_refused(api, endpoint, league, season, team)
        return
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "note_asked"),
            {"endpoint": endpoint, "league": league, "season": season, "team": team},
        )


async def record_refused(
    api: FootballClient, endpoint: str, league: int, season: int, team: int = 0
) -> None:
    """Remember that the last question was refused, if it was: some answers are only broken."""
    if api.refusal is not None:
        await record_refusal(api.store, endpoint, league, season, team)


async def recent_refusals(
    api: FootballClient, endpoint: str, rests: timedelta = _REFUSED_RESTS
) -> set[tuple[int, int]]:
    """The leagues and seasons about which an endpoint is not worth another question yet."""
    return await load_refusals(api.store, endpoint, refusals_since(api, rests))


def refusals_since(api: FootballClient, rests: timedelta = _REFUSED_RESTS) -> datetime:
    """What was refused later than that is left alone; somebody who asks by hand has a reason."""
    return api.now if api.is_manual else api.now - rests


@dataclass(frozen=True)
class Progress:
    """Everything from `first_date` up to, but not including, `next_date` is in the mirror."""

    first_date: date | None = None
    next_date: date | None = None
    completed: bool = False
    last_error: str | None = None
    updated_at: datetime | None = None

    def reaches(self, start: date | None, end: date | None) -> bool:
        """Whether it still covers a season whose dates may have moved since."""
        early = start is None or (self.first_date is not None and self.first_date <= start)
        late = end is None or (self.next_date is not None and self.next_date > end)
        return early and late


async def load_progress(store: Store, job: str) -> dict[tuple[int, int], Progress]:
    """The progress of a job's backfill, by league and season."""
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
