"""Which seasons of which leagues are followed, and what the API says it has of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from hasat.sources.football.asking import Api
from hasat.store import Store
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"
_LEAGUES_AGE = timedelta(hours=20)


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


async def followed_seasons(api: Api, *, with_last: bool = False) -> list[Season]:
    """The tracked seasons, and with `with_last` those before them that the API lists."""
    await ensure_leagues(api)
    wanted = [(league.id, league.season) for league in await api.leagues()]
    listed = await _listed(api.store, [league for league, _ in wanted])
    found = [listed.get(pair, Season(*pair)) for pair in wanted]
    if with_last:
        before = [(league, year - 1) for league, year in wanted if (league, year - 1) not in wanted]
        found += [
            Season(**{**vars(listed[pair]), "is_followed": False})
            for pair in before
            if pair in listed
        ]
    return found


async def ensure_leagues(api: Api) -> None:
    """Know what the API has: one request for all leagues, about once a day."""
    asked = await last_asked(api.store, "leagues")
    if (0, 0, 0) not in asked or api.now - asked[0, 0, 0] > _LEAGUES_AGE:
        answer = await api.ask("leagues")
        await api.load(answer)
        if answer is not None:
            await note_asked(api.store, "leagues", 0, 0)


async def _listed(store: Store, leagues: Sequence[int]) -> dict[tuple[int, int], Season]:
    async with store.connection() as conn:
        cursor = await conn.execute(statement(_ROOM, "listed_seasons"), {"leagues": list(leagues)})
        rows = await cursor.fetchall()
    return {(league, year): Season(league, year, *rest) for league, year, *rest in rows}


Asked = dict[tuple[int, int, int], datetime]


async def last_asked(store: Store, endpoint: str) -> Asked:
    """When an endpoint was last asked, by league, season and team."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT league_id, season, team_id, asked_at FROM football.season_asked"
            " WHERE endpoint = %s",
            [endpoint],
        )
        return {(league, season, team): at for league, season, team, at in await cursor.fetchall()}


async def note_asked(store: Store, endpoint: str, league: int, season: int, team: int = 0) -> None:
    """Remember that it was asked just now."""
    async with store.connection() as conn:
        await conn.execute(
            statement(_ROOM, "note_asked"),
            {"endpoint": endpoint, "league": league, "season": season, "team": team},
        )
