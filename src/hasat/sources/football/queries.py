"""What assistants may ask of the mirror: matches, tables, injuries and details, as published.

What was inferred about a match stands in fields of its own and is called so.
"""

from collections.abc import Sequence
from datetime import date as day
from typing import Any

from psycopg import sql

from hasat.errors import NotFoundError
from hasat.sources.football.told import Elements, Fixtures, FixtureTold
from hasat.sources.registry import Tool, Workshop
from hasat.sources.tooling import Id, Limit, Text, at, tools
from hasat.store import Store
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"
_BY_KEY = sql.SQL("key")


class FootballQueries:
    """The tools that read the mirror."""

    def __init__(self, shop: Workshop) -> None:
        self._store = shop.store

    def all(self) -> tuple[Tool, ...]:
        return tools(
            self.query_fixtures,
            self.query_standings,
            self.query_teams,
            self.query_injuries,
            self.query_fixture_events,
            self.query_fixture_lineups,
            self.query_fixture_statistics,
            self.query_fixture_players,
        )

    async def query_fixtures(
        self,
        league_id: Id | None = None,
        season: Id | None = None,
        team_id: Id | None = None,
        fixture_id: Id | None = None,
        date: day | None = None,
        status: Text | None = None,
        limit: Limit = 50,
    ) -> Fixtures:
        """Matches, the latest first; each says when the API last told of it.

        inferred_status is a guess that stands until the API answers, never a result.
        """
        items = await fixtures_told(
            self._store,
            league=league_id,
            season=season,
            team=team_id,
            ids=None if fixture_id is None else [fixture_id],
            date=date,
            status=status,
            limit=limit,
        )
        return Fixtures(ts_utc=await at(self._store), items=items)

    async def query_standings(
        self, league_id: Id, season: Id | None = None, limit: Limit = 200
    ) -> Elements:
        """The lines of a league's tables, every group of them, as published."""
        return await self._elements(
            "standings",
            {"league_id": league_id, "season": season},
            limit,
            sql.SQL("group_name, rank"),
        )

    async def query_teams(
        self, team_id: Id | None = None, name: Text | None = None, limit: Limit = 50
    ) -> Elements:
        """Teams by their id or by their exact name, as published."""
        return await self._elements("teams", {"team_id": team_id, "name": name}, limit)

    async def query_injuries(
        self,
        league_id: Id | None = None,
        season: Id | None = None,
        team_id: Id | None = None,
        fixture_id: Id | None = None,
        limit: Limit = 100,
    ) -> Elements:
        """Who misses or may miss a match, and why, as published."""
        wanted = {
            "league_id": league_id,
            "season": season,
            "team_id": team_id,
            "fixture_id": fixture_id,
        }
        return await self._elements("injuries", wanted, limit, sql.SQL("fixture_date DESC, key"))

    async def query_fixture_events(self, fixture_id: Id, limit: Limit = 200) -> Elements:
        """Goals, cards, substitutions and video decisions of a match, as published."""
        return await self._details(
            "events", fixture_id, limit, sql.SQL("elapsed, extra NULLS FIRST, key")
        )

    async def query_fixture_lineups(self, fixture_id: Id) -> Elements:
        """The line-ups of a match, one a team, as published."""
        return await self._details("lineups", fixture_id, 10)

    async def query_fixture_statistics(self, fixture_id: Id) -> Elements:
        """The statistics of a match, one block a team, as published."""
        return await self._details("statistics", fixture_id, 10)

    async def query_fixture_players(self, fixture_id: Id, limit: Limit = 200) -> Elements:
        """Each player's match, as published."""
        return await self._details("players", fixture_id, limit)

    async def _details(
        self, block: str, fixture: int, limit: int, order: sql.SQL = _BY_KEY
    ) -> Elements:
        if not await fixtures_told(self._store, ids=[fixture], limit=1):
            raise NotFoundError(
                f"The mirror has no match {fixture}.", remedy="query_fixtures lists what it has."
            )
        return await self._elements(f"fixture_{block}", {"fixture_id": fixture}, limit, order)

    async def _elements(
        self, dataset: str, wanted: dict[str, Any], limit: int, order: sql.SQL = _BY_KEY
    ) -> Elements:
        given = {column: value for column, value in wanted.items() if value is not None}
        conditions = [
            sql.SQL("{} = {}").format(sql.Identifier(column), sql.Placeholder(column))
            for column in given
        ]
        where = sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true")
        rows = sql.SQL("FROM {} WHERE {}").format(sql.Identifier("core", dataset), where)
        async with self._store.connection() as conn:
            counted = await conn.execute(sql.SQL("SELECT count(*) {}").format(rows), given)
            total = await counted.fetchone()
            cursor = await conn.execute(
                sql.SQL("SELECT body {} ORDER BY {} LIMIT {}").format(rows, order, limit), given
            )
            items = [body for (body,) in await cursor.fetchall()]
        assert total is not None
        return Elements(ts_utc=await at(self._store), total=total[0], items=items)


async def fixtures_told(
    store: Store,
    *,
    limit: int,
    ids: Sequence[int] | None = None,
    league: int | None = None,
    season: int | None = None,
    team: int | None = None,
    date: day | None = None,
    status: str | None = None,
) -> list[FixtureTold]:
    """Matches by whatever is given, the latest first."""
    values = {
        "ids": None if ids is None else list(ids),
        "league": league,
        "season": season,
        "team": team,
        "date": date,
        "status": status,
        "limit": limit,
    }
    return await store.rows(FixtureTold, statement(_ROOM, "tool_fixtures"), values)
