"""What assistants may ask of the mirror: matches, tables, injuries and details, as published.

What was inferred about a match stands in fields of its own and is called so.
"""

from collections.abc import Sequence
from datetime import date as day
from typing import Annotated, Any

from psycopg import sql
from psycopg.rows import dict_row
from pydantic import Field

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.sources.football.api import queries
from hasat.sources.football.api.queries import read_page
from hasat.sources.football.api.schemas import (
    Coverage,
    CoverageRecord,
    CoverageSummary,
    DetailStatus,
    Elements,
    EndpointCoverage,
    FixtureRecord,
    Fixtures,
)
from hasat.sources.football.datasets import codes_in
from hasat.sources.registry import Tool, ToolContext
from hasat.sources.tools import Id, Limit, Text, tools
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_BY_KEY = sql.SQL("key")


class RecordTools:
    """The tools that read the mirror."""

    def __init__(self, context: ToolContext) -> None:
        self._store = context.store

    def all(self) -> tuple[Tool, ...]:
        return tools(
            self.query_fixtures,
            self.query_standings,
            self.query_teams,
            self.query_injuries,
            self.query_top_scorers,
            self.query_team_statistics,
            self.query_fixture_events,
            self.query_fixture_lineups,
            self.query_fixture_statistics,
            self.query_fixture_players,
            self.get_fixture_detail_status,
            self.get_coverage_status,
            self.get_coverage_summary,
        )

    async def query_fixtures(
        self,
        league_id: Id | None = None,
        season: Id | None = None,
        team_id: Id | None = None,
        fixture_id: Id | None = None,
        date: day | None = None,
        status: Annotated[Text, Field(description="Codes such as FT-AET-PEN.")] | None = None,
        limit: Limit = 50,
    ) -> Fixtures:
        """Matches, the latest first; each says when the API last told of it.

        inferred_status is a guess that stands until the API answers, never a result.
        """
        items = await load_fixtures(
            self._store,
            league=league_id,
            season=season,
            team=team_id,
            ids=None if fixture_id is None else [fixture_id],
            date=date,
            status=status,
            limit=limit + 1,
        )
        return Fixtures(
            ts_utc=await self._store.now(), more=len(items) > limit, items=items[:limit]
        )

    async def query_standings(
        self, league_id: Id, season: Id | None = None, limit: Limit = 200
    ) -> Elements:
        """The lines of a league's tables, every group of them, as published.

        Each has its season beside it; without one given, all of them are told, the latest first.
        """
        return await self._elements(
            "standings",
            {"league_id": league_id, "season": season},
            limit,
            sql.SQL("season DESC, group_name, rank, key"),
            extra_columns=("season",),
        )

    async def query_teams(
        self,
        team_id: Id | None = None,
        name: Text | None = None,
        league_id: Id | None = None,
        limit: Limit = 50,
    ) -> Elements:
        """Teams by their id, a part of their name or a league they play in, as published."""
        of = None if league_id is None else [league_id, None]
        asked = {"id": team_id, "search": name, "of": of}
        async with self._store.connection() as conn:
            found = await read_page(conn, queries.TEAMS, asked, size=limit)
        items = [row["body"] for row in found.rows]
        return Elements(ts_utc=await self._store.now(), total=found.total, items=items)

    async def query_top_scorers(
        self, league_id: Id, season: Id | None = None, limit: Limit = 50
    ) -> Elements:
        """Who scored most in a league's season, as published; its season stands beside each."""
        return await self._elements(
            "top_scorers",
            {"league_id": league_id, "season": season},
            limit,
            sql.SQL("season DESC, goals DESC NULLS LAST, key"),
            extra_columns=("season",),
        )

    async def query_team_statistics(
        self,
        league_id: Id | None = None,
        season: Id | None = None,
        team_id: Id | None = None,
        limit: Limit = 20,
    ) -> Elements:
        """Teams' seasons in figures, as published."""
        wanted = {"league_id": league_id, "season": season, "team_id": team_id}
        return await self._elements("team_statistics", wanted, limit)

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
        """Each player's match, as published, and his team_id beside it."""
        return await self._details(
            "players", fixture_id, limit, sql.SQL("team_id, key"), extra_columns=("team_id",)
        )

    async def get_fixture_detail_status(self, fixture_id: Id) -> DetailStatus:
        """How many events, line-ups, statistics and players of a match there are."""
        fixture = await self._load_fixture(fixture_id)
        async with self._store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(load_query(_PACKAGE, "tool_details"), {"fixture": fixture_id})
            [counts] = await cursor.fetchall()
        return DetailStatus(ts_utc=await self._store.now(), fixture=fixture, **counts)

    async def get_coverage_status(
        self,
        league_id: Id | None = None,
        season: Id | None = None,
        endpoint: Text | None = None,
        limit: Limit = 100,
    ) -> Coverage:
        """What is there of what should be, by league, season and endpoint, the least first."""
        wanted = {
            "league": league_id,
            "season": season,
            "endpoint": endpoint and f"/{endpoint.strip('/')}",
        }
        items = await self._store.rows(
            CoverageRecord, load_query(_PACKAGE, "tool_coverage"), wanted
        )
        return Coverage(ts_utc=await self._store.now(), total=len(items), items=items[:limit])

    async def get_coverage_summary(self, season: Id | None = None) -> CoverageSummary:
        """The same summed up by endpoint."""
        items = await self._store.rows(
            EndpointCoverage, load_query(_PACKAGE, "tool_coverage_summary"), {"season": season}
        )
        return CoverageSummary(ts_utc=await self._store.now(), season=season, items=items)

    async def _load_fixture(self, fixture: int) -> FixtureRecord:
        if found := await load_fixtures(self._store, ids=[fixture], limit=1):
            return found[0]
        raise NotFoundError(
            msg("The mirror has no match {fixture}.", fixture=fixture),
            remedy=msg("query_fixtures lists what it has."),
        )

    async def _details(
        self,
        block: str,
        fixture: int,
        limit: int,
        order: sql.SQL = _BY_KEY,
        extra_columns: Sequence[str] = (),
    ) -> Elements:
        await self._load_fixture(fixture)
        wanted = {"fixture_id": fixture}
        return await self._elements(f"fixture_{block}", wanted, limit, order, extra_columns)

    async def _elements(
        self,
        dataset: str,
        wanted: dict[str, Any],
        limit: int,
        order: sql.SQL = _BY_KEY,
        extra_columns: Sequence[str] = (),
    ) -> Elements:
        """Records as published; `beside` are columns that a body does not say of itself."""
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
                sql.SQL("SELECT {} {} ORDER BY {} LIMIT {}").format(
                    sql.SQL(", ").join(map(sql.Identifier, ("body", *extra_columns))),
                    rows,
                    order,
                    limit,
                ),
                given,
            )
            items = [
                {**dict(zip(extra_columns, said, strict=True)), **body}
                for body, *said in await cursor.fetchall()
            ]
        assert total is not None
        return Elements(ts_utc=await self._store.now(), total=total[0], items=items)


async def load_fixtures(
    store: Store,
    *,
    limit: int,
    ids: Sequence[int] | None = None,
    league: int | None = None,
    season: int | None = None,
    team: int | None = None,
    date: day | None = None,
    status: str | None = None,
) -> list[FixtureRecord]:
    """Matches by whatever is given, the latest first."""
    values = {
        "ids": None if ids is None else list(ids),
        "league": league,
        "season": season,
        "team": team,
        "date": date,
        "status": codes_in(status),
        "limit": limit,
    }
    return await store.rows(FixtureRecord, load_query(_PACKAGE, "tool_fixtures"), values)
