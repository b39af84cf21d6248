"""MCP tools that read mirrored records: matches, tables, injuries and details, as published.

Inferences about a match are in separate fields, named as such.
"""

from collections.abc import Sequence
from datetime import date as day
from datetime import datetime
from typing import Annotated, Any

from psycopg import sql
from psycopg.rows import dict_row
from pydantic import BaseModel, Field

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.source import Tool, ToolContext
from hasat.sources.football.api import queries
from hasat.sources.football.api.queries import read_page
from hasat.sources.football.states import codes_in
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.tools import Id, Limit, Text, ToolResponse, tools

_PACKAGE = "hasat.sources.football"
_BY_KEY = sql.SQL("key")


class FixtureRecord(BaseModel):
    """A match as published, with inferences in separate fields."""

    fixture_id: int
    league_id: int | None
    league: str | None
    season: int | None
    round: str | None
    date: datetime | None
    status_short: str | None
    elapsed: int | None
    home_team_id: int | None
    home_team: str | None
    away_team_id: int | None
    away_team: str | None
    goals_home: int | None
    goals_away: int | None
    told_at: datetime | None = Field(description="When the API last reported it.")
    details_at: datetime | None
    inferred_status: str | None = Field(description="A guess, not a published state.")
    needs_score_verification: bool
    unconfirmed_since: datetime | None = Field(
        description="When the API last confirmed a state that should have changed since."
    )


class Fixtures(ToolResponse):
    more: bool = Field(description="Whether there are more matches.")
    items: list[FixtureRecord]


class Elements(ToolResponse):
    """Elements of a dataset as published."""

    total: int
    items: list[dict[str, Any]]


class CoverageRecord(BaseModel):
    """How much of a season's data the mirror has."""

    league_id: int
    league_name: str | None
    season: int
    endpoint: str
    covered: bool | None = Field(description="Whether the API has it; null if unknown.")
    expected_count: int | None = Field(
        description="For matches: the count in the API's last listing of the whole season."
    )
    actual_count: int
    count_coverage: float | None = Field(description="Percent; null if unknown.")
    last_update: datetime | None


class Coverage(ToolResponse):
    total: int
    items: list[CoverageRecord]


class EndpointCoverage(BaseModel):
    endpoint: str
    league_seasons: int
    complete: int = Field(description="Of these, complete.")
    unknown: int = Field(description="Of these, with an unknown expected count.")
    expected_count: int
    actual_count: int
    oldest_update: datetime | None


class CoverageSummary(ToolResponse):
    season: int | None
    items: list[EndpointCoverage]


class DetailStatus(ToolResponse):
    """The mirrored details of a match, and when the API last reported it."""

    fixture: FixtureRecord
    events: int
    lineups: int
    statistics: int
    players: int


class RecordTools:
    """Tools that read mirrored records."""

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
        """Return matches, the latest first; told_at is when the API last reported a match.

        inferred_status is a guess until the API responds, never a result.
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
        """Return the lines of a league's tables, all groups, as published.

        Each line has its season; without `season` all seasons are returned, the latest first.
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
        """Return teams by id, part of their name or league, as published."""
        of = None if league_id is None else [league_id, None]
        filters = {"id": team_id, "search": name, "of": of}
        async with self._store.connection() as conn:
            found = await read_page(conn, queries.TEAMS, filters, size=limit)
        items = [row["body"] for row in found.rows]
        return Elements(ts_utc=await self._store.now(), total=found.total, items=items)

    async def query_top_scorers(
        self, league_id: Id, season: Id | None = None, limit: Limit = 50
    ) -> Elements:
        """Return the top scorers of a league, as published, each with its season."""
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
        """Return team statistics by season, as published."""
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
        """Return injuries and suspensions with reasons, as published."""
        wanted = {
            "league_id": league_id,
            "season": season,
            "team_id": team_id,
            "fixture_id": fixture_id,
        }
        return await self._elements("injuries", wanted, limit, sql.SQL("fixture_date DESC, key"))

    async def query_fixture_events(self, fixture_id: Id, limit: Limit = 200) -> Elements:
        """Return goals, cards, substitutions and video decisions of a match, as published."""
        return await self._details(
            "events", fixture_id, limit, sql.SQL("elapsed, extra NULLS FIRST, key")
        )

    async def query_fixture_lineups(self, fixture_id: Id) -> Elements:
        """Return the line-ups of a match, one for each team, as published."""
        return await self._details("lineups", fixture_id, 10)

    async def query_fixture_statistics(self, fixture_id: Id) -> Elements:
        """Return the statistics of a match, one block for each team, as published."""
        return await self._details("statistics", fixture_id, 10)

    async def query_fixture_players(self, fixture_id: Id, limit: Limit = 200) -> Elements:
        """Return the statistics of each player in a match, as published, with team_id."""
        return await self._details(
            "players", fixture_id, limit, sql.SQL("team_id, key"), extra_columns=("team_id",)
        )

    async def get_fixture_detail_status(self, fixture_id: Id) -> DetailStatus:
        """Return the number of events, line-ups, statistics and players of a match."""
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
        """Return the coverage by league, season and endpoint, the lowest first."""
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
        """Return the coverage summed up by endpoint."""
        items = await self._store.rows(
            EndpointCoverage, load_query(_PACKAGE, "tool_coverage_summary"), {"season": season}
        )
        return CoverageSummary(ts_utc=await self._store.now(), season=season, items=items)

    async def _load_fixture(self, fixture: int) -> FixtureRecord:
        if found := await load_fixtures(self._store, ids=[fixture], limit=1):
            return found[0]
        raise NotFoundError(
            msg("The mirror has no match {fixture}.", fixture=fixture),
            remedy=msg("query_fixtures lists the matches."),
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
        """Return records as published, with columns that their bodies lack."""
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
                {**dict(zip(extra_columns, values, strict=True)), **body}
                for body, *values in await cursor.fetchall()
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
    """Return the matches for all given filters, the latest first."""
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
