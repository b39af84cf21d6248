"""The followed seasons: their coverage, requests made for them and progress of backfills."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from hasat.messages import msg
from hasat.sources.football.client import FootballClient, load_refusals, record_refusal
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.leagues import FollowedLeague
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_LEAGUES_AGE = timedelta(hours=20)
# The number of unlisted seasons that a run names.
_MAX_SENTENCES = 5
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
        api.report_idle(
            msg("No followed league is in the API's list.")
            if api.settings.tracked_leagues
            else msg("No league is followed. Set tracked_leagues.")
        )
    listed = await listed_seasons(api.store, [league for league, _ in wanted])
    if missing := await _unlisted(api.store, [pair for pair in wanted if pair not in listed]):
        _warn_unlisted(api, missing, listed)
        # The backfills ask once whether there are matches nevertheless.
        if not (api.is_manual or with_previous):
            wanted = [pair for pair in wanted if pair not in missing or missing[pair]]
            if not wanted:
                api.report_idle(msg("The API lists no followed league in its season."))
    found = [listed.get(pair, Season(*pair)) for pair in wanted]
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
    api.reports_leagues = True
    response = await api.fetch("leagues")
    loaded = await api.load(response)
    await record_request(api, response if loaded else None, "leagues", 0, 0)


async def _unlisted(
    store: Store, pairs: Sequence[tuple[int, int]]
) -> Mapping[tuple[int, int], bool]:
    """Return followed seasons that the API does not list, and whether the mirror has matches.

    These are typing errors, or seasons of the future. Without the API's list nothing is known.
    """
    if not pairs:
        return {}
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "unlisted_seasons"),
            {"leagues": [league for league, _ in pairs], "seasons": [year for _, year in pairs]},
        )
        return {(league, year): known for league, year, known in await cursor.fetchall()}


def _warn_unlisted(
    api: FootballClient,
    missing: Iterable[tuple[int, int]],
    listed: Iterable[tuple[int, int]],
) -> None:
    """Warn about unlisted seasons, in a scheduled run only when the list was fetched."""
    if not api.reports_leagues:
        return
    sentences = _unlisted_sentences(missing, listed)
    for sentence in sentences[:_MAX_SENTENCES]:
        api.warn(sentence)
    if len(sentences) > _MAX_SENTENCES:
        more = len(sentences) - _MAX_SENTENCES
        api.warn(msg("{count} more followed seasons are not listed.", count=more))


def _unlisted_sentences(
    missing: Iterable[tuple[int, int]], listed: Iterable[tuple[int, int]]
) -> list[str]:
    latest: dict[int, int] = {}
    for league, year in listed:
        latest[league] = max(year, latest.get(league, year))
    return [
        msg(
            "The API does not list season {year} of league {league}; its latest season is"
            " {latest}.",
            league=league,
            year=year,
            latest=latest[league],
        )
        if league in latest
        else msg("The API does not list league {league} (season {year}).", league=league, year=year)
        for league, year in missing
    ]


async def unlisted_remarks(store: Store, followed: Sequence[FollowedLeague]) -> list[str]:
    """Return a sentence for each followed season that the API does not list."""
    pairs = [(league.id, league.season) for league in followed]
    listed = await listed_seasons(store, [league for league, _ in pairs])
    return _unlisted_sentences(
        await _unlisted(store, [pair for pair in pairs if pair not in listed]), listed
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
