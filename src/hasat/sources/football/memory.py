"""What answers say about the collecting itself: what was asked when, and how far backfills are.

Jobs write this down as they go. Where it got lost, a rebuild puts it back, so that nothing is asked
for again that is in the mirror; what is still there is left as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from hasat.sources.football.covers import SPELLING, listed_season
from hasat.sources.football.details import BLOCK_OF
from hasat.sources.football.elements import BLOCKS, Extract
from hasat.sources.football.fixtures import BACKFILL
from hasat.sources.football.folding import league_of
from hasat.sources.football.raw import Told
from hasat.sources.football.tables import STANDINGS_BACKFILL
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_SEASONAL = ("standings", "players/topscorers", "injuries", "teams/statistics")
_DAY = timedelta(days=1)

_Season = tuple[int, int]


def _without_spelling(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if name not in SPELLING}


class Memory:
    """Notes of answers, the newest first."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int, int, int], datetime] = {}
        self._told: dict[int, datetime] = {}
        self._detailed: dict[int, datetime] = {}
        self._vanished: set[int] = set()
        self._empty: dict[tuple[int, str], bool] = {}
        self._listed_matches: dict[_Season, tuple[int, datetime]] = {}
        self._teams: dict[_Season, datetime] = {}
        self._done: dict[tuple[str, int, int], datetime] = {}
        self._windows: dict[_Season, list[tuple[date, date]]] = {}

    def note(self, told: Told, found: Extract, counted: int) -> None:
        """What the next older answer, of so many rows, adds."""
        for block in found.blocks:
            if block.fixture not in self._vanished:
                self._empty.setdefault((block.fixture, block.name), block.is_empty)
        listed = listed_season(told.endpoint, told.parameters)
        if listed and counted:
            self._listed_matches.setdefault(listed, (counted, told.at))
        asked = _without_spelling(told.parameters)
        numbers = {name: int(text) for name, text in asked.items() if text.isdecimal()}
        season = (numbers.get("league", 0), numbers.get("season", 0))
        match told.endpoint:
            case "leagues" if not asked:
                self._asked.setdefault(("leagues", 0, 0, 0), told.at)
            case "injuries" if asked.keys() == {"date"}:
                day = date.fromisoformat(asked["date"]).toordinal()
                self._asked.setdefault(("injuries", 0, day, 0), told.at)
            case "teams" if asked.keys() == {"league", "season"}:
                self._teams.setdefault(season, told.at)
            case "fixtures":
                self._note_fixtures(told, found, season)
            case endpoint if endpoint in BLOCK_OF and asked.keys() == {"fixture"}:
                self._told.setdefault(numbers["fixture"], told.at)
                self._note_detailed(numbers["fixture"], told.at)
            case endpoint if endpoint in _SEASONAL and {"league", "season"} <= asked.keys():
                self._asked.setdefault((endpoint, *season, numbers.get("team", 0)), told.at)
                if endpoint == "standings":
                    self._done.setdefault((STANDINGS_BACKFILL, *season), told.at)

    def _note_fixtures(self, told: Told, found: Extract, season: _Season) -> None:
        asked = _without_spelling(told.parameters)
        if asked.keys() == {"league", "season"}:
            self._done.setdefault((BACKFILL, *season), told.at)
        elif asked.keys() == {"league", "season", "from", "to"}:
            window = (date.fromisoformat(asked["from"]), date.fromisoformat(asked["to"]))
            self._windows.setdefault(season, []).append(window)
        by_id = asked.get("ids", asked.get("id", "")).split("-")
        for element in found.elements:
            if element.dataset != "fixtures":
                continue
            if told.leagues is None or league_of(element) in told.leagues:
                self._told.setdefault(int(element.key), told.at)
            # One that was asked for in vain is not there.
            if element.key in by_id:
                self._note_detailed(int(element.key), told.at)
        self._vanished.update(told.vanished)

    def _note_detailed(self, fixture: int, at: datetime) -> None:
        """Details that left the mirror with their match are not there, should it be back."""
        if fixture not in self._vanished:
            self._detailed.setdefault(fixture, at)

    async def put_back(self, conn: AsyncConnection[Any]) -> int:
        """Write down what is missing; how many notes that were."""
        listed = await self._listed(conn)
        async with conn.cursor() as cursor:
            # The only notes that are many, and most are there.
            await cursor.execute("SELECT fixture_id FROM football.fixture_told")
            known = {number for (number,) in await cursor.fetchall()}
            lost = [number for number in self._told if number not in known]
            back = 0
            for name, rows in (
                ("put_back_asked", [(*key, at) for key, at in self._asked.items()]),
                ("put_back_teams", [(*key, at) for key, at in self._teams.items()]),
                ("put_back_told", [*self._told_of(lost)]),
                ("put_back_listed", [(*key, *n) for key, n in self._listed_matches.items()]),
                ("put_back_progress", [*self._progress(listed)]),
            ):
                if rows:
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    await cursor.execute(load_query(_PACKAGE, name), columns)
                    back += cursor.rowcount
        return back

    def _told_of(self, fixtures: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        for number in fixtures:
            empty = [block for block in BLOCKS if self._empty.get((number, block))]
            yield number, self._told[number], self._detailed.get(number), ",".join(empty)

    def _progress(self, listed: Mapping[_Season, tuple[date | None, date | None]]) -> Any:
        for (job, *season), at in self._done.items():
            start, end = listed.get((season[0], season[1]), (None, None))
            following = None if end is None or job != BACKFILL else end + _DAY
            yield job, *season, start, following, True, at
        for (league, year), windows in self._windows.items():
            start, end = listed.get((league, year), (None, None))
            if (BACKFILL, league, year) in self._done or start is None or end is None:
                continue
            reached = start
            for first, last in sorted(windows):
                if first <= reached <= last:
                    reached = last + _DAY
            newest = max(self._told.values(), default=None)
            yield BACKFILL, league, year, start, reached, reached > end, newest

    async def _listed(
        self, conn: AsyncConnection[Any]
    ) -> dict[_Season, tuple[date | None, date | None]]:
        leagues = {league for _, league, _ in self._done} | {league for league, _ in self._windows}
        cursor = await conn.execute(
            load_query(_PACKAGE, "listed_seasons"), {"leagues": sorted(leagues)}
        )
        return {
            (league, year): (start, end) for league, year, start, end, _ in await cursor.fetchall()
        }
