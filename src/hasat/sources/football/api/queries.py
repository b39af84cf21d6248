"""Filtered and paged queries of records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from hasat.store import Store
from hasat.store.queries import load_query


@dataclass(frozen=True)
class ListQuery:
    """A query of records: source, columns, order and conditions by filter name.

    Each condition has one parameter, which has the name of the filter.
    """

    source: LiteralString
    columns: LiteralString
    order: LiteralString
    conditions: Mapping[str, LiteralString]


async def read_rows(store: Store, query: str, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of a named query of this source."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.football", query), values)
        return await cursor.fetchall()


class Page(NamedTuple):
    """The total number of matching records, and the records of the page."""

    total: int
    rows: list[dict[str, Any]]


async def read_page(
    conn: AsyncConnection[Any],
    list_query: ListQuery,
    filters: Mapping[str, Any],
    *,
    page: int = 1,
    size: int = 1000,
) -> Page:
    """Return a page of the records that match all filters that are not None."""
    given = {name: value for name, value in filters.items() if value is not None}
    conditions = [sql.SQL(list_query.conditions[name]) for name in given]
    where = sql.SQL(" AND ").join([sql.SQL("true"), *conditions])
    source = sql.SQL(list_query.source)
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            sql.SQL("SELECT count(*) AS total FROM {} WHERE {}").format(source, where), given
        )
        [counted] = await cursor.fetchall()
        query = sql.SQL(
            "SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %(size)s OFFSET %(skip)s"
        ).format(sql.SQL(list_query.columns), source, where, sql.SQL(list_query.order))
        await cursor.execute(query, {**given, "size": size, "skip": (page - 1) * size})
        return Page(counted["total"], await cursor.fetchall())


_LEAGUE_SEASON: dict[str, LiteralString] = {
    "league": "m.league_id = %(league)s",
    "season": "m.season = %(season)s",
}
_TEAM: LiteralString = "m.team_id = %(team)s"

FIXTURES = ListQuery(
    "core.fixtures AS m"
    " LEFT JOIN core.fixture_inferences AS i USING (fixture_id)"
    " LEFT JOIN football.fixture_told AS t USING (fixture_id)",
    "m.body, m.changed_at, t.told_at, t.details_at, football.state_of(m.status_short) AS state,"
    " i.inferred_status, i.needs_score_verification, i.reason, i.inferred_at,"
    " football.unconfirmed_since(m.status_short, m.date, t.told_at) AS unconfirmed_since",
    "m.date NULLS LAST, m.key",
    {
        **_LEAGUE_SEASON,
        "id": "m.fixture_id = %(id)s",
        "team": "%(team)s IN (m.home_team_id, m.away_team_id)",
        "opponent": "%(opponent)s IN (m.home_team_id, m.away_team_id)",
        "date": "m.date >= %(date)s::date::timestamp AT TIME ZONE 'UTC'"
        " AND m.date < (%(date)s::date + 1)::timestamp AT TIME ZONE 'UTC'",
        "from": "m.date >= %(from)s::date::timestamp AT TIME ZONE 'UTC'",
        "to": "m.date < (%(to)s::date + 1)::timestamp AT TIME ZONE 'UTC'",
        "status": "m.status_short = ANY (%(status)s)",
        "state": "football.state_of(m.status_short) = %(state)s",
        "round": "m.round = %(round)s",
        "inferred": "(i.fixture_id IS NOT NULL) = %(inferred)s",
    },
)
LATEST_FIRST = ListQuery(
    FIXTURES.source, FIXTURES.columns, "m.date DESC NULLS LAST, m.key", FIXTURES.conditions
)
TEAMS = ListQuery(
    "core.teams AS m",
    "m.body",
    "m.name, m.key",
    {
        "id": "m.team_id = %(id)s",
        "country": "m.country = %(country)s",
        "search": "strpos(core.fold(m.name), core.fold(%(search)s)) > 0",
        # A league and optionally its season.
        "of": "m.team_id IN (SELECT unnest(ARRAY[f.home_team_id, f.away_team_id])"
        " FROM core.fixtures AS f WHERE f.league_id = (%(of)s::bigint[])[1]"
        " AND f.season = coalesce((%(of)s::bigint[])[2], f.season))",
    },
)
LEAGUES = ListQuery(
    "core.leagues AS m",
    "m.body",
    "m.league_id",
    {
        "id": "m.league_id = %(id)s",
        "country": "m.country = %(country)s",
        "type": "lower(m.type) = lower(%(type)s)",
        "search": "strpos(core.fold(m.name), core.fold(%(search)s)) > 0",
    },
)
COUNTRIES = ListQuery("core.countries AS m", "m.body", "m.key", {"name": "m.name = %(name)s"})
TIMEZONES = ListQuery("core.timezones AS m", "m.body", "m.key", {})
STANDINGS = ListQuery(
    "core.standings AS m",
    "m.body, m.group_name",
    "m.group_name, m.rank, m.key",
    {**_LEAGUE_SEASON, "team": _TEAM},
)
INJURIES = ListQuery(
    "core.injuries AS m",
    "m.body, m.changed_at",
    "m.fixture_date NULLS LAST, m.key",
    {
        **_LEAGUE_SEASON,
        "team": _TEAM,
        "fixture": "m.fixture_id = %(fixture)s",
        "player": "m.player_id = %(player)s",
        "date": "m.fixture_date = %(date)s",
    },
)
TOP_SCORERS = ListQuery(
    "core.top_scorers AS m",
    "m.body, m.league_id, m.season",
    "m.league_id, m.season, m.goals DESC NULLS LAST, m.key",
    {**_LEAGUE_SEASON, "team": _TEAM},
)
TEAM_STATISTICS = ListQuery(
    "core.team_statistics AS m",
    "m.body",
    "m.league_id, m.season, m.team_id, m.key",
    {**_LEAGUE_SEASON, "team": _TEAM},
)
_PLAYER: LiteralString = "m.player_id = %(player)s"
TEAM_FORM = ListQuery(
    "mart.team_form AS m",
    "m.*",
    "m.points_of_5 DESC NULLS LAST, m.team, m.team_id",
    {**_LEAGUE_SEASON, "team": _TEAM},
)
TEAM_SEASONS = ListQuery(
    "mart.team_seasons AS m",
    "m.*",
    "m.season DESC, m.league_id, m.won DESC, m.team, m.team_id",
    {**_LEAGUE_SEASON, "team": _TEAM},
)
PLAYER_SEASONS = ListQuery(
    "mart.player_seasons AS m",
    "m.*",
    "m.season DESC, m.league_id, m.goals DESC NULLS LAST, m.name, m.player_id, m.team_id",
    {**_LEAGUE_SEASON, "team": _TEAM, "player": _PLAYER},
)
HEAD_TO_HEAD = ListQuery(
    "mart.head_to_head AS m",
    "m.*",
    "m.played DESC, m.opponent, m.opponent_id",
    {"team": _TEAM, "opponent": "m.opponent_id = %(opponent)s"},
)
_OF_A_FIXTURE: dict[str, LiteralString] = {"fixture": "m.fixture_id = %(fixture)s"}
BLOCKS = {
    "events": ListQuery(
        "core.fixture_events AS m",
        "m.body",
        "m.elapsed NULLS LAST, m.extra NULLS FIRST, m.key",
        _OF_A_FIXTURE,
    ),
    "lineups": ListQuery("core.fixture_lineups AS m", "m.body", "m.key", _OF_A_FIXTURE),
    "statistics": ListQuery("core.fixture_statistics AS m", "m.body", "m.key", _OF_A_FIXTURE),
    "players": ListQuery(
        "core.fixture_players AS m", "m.body, m.team_id", "m.team_id, m.key", _OF_A_FIXTURE
    ),
}
COVERAGE = ListQuery(
    "mart.coverage_status AS m",
    "m.*",
    "m.league_id, m.season DESC, m.endpoint",
    {**_LEAGUE_SEASON, "endpoint": "m.endpoint = %(endpoint)s"},
)
