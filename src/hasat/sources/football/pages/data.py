"""Rows of the pages' own queries, and what several pages show."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from hasat.sources.football.states import state_of
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football.pages"


@dataclass(frozen=True)
class Match:
    """A match as published, with the state that Hasat inferred, if any."""

    fixture_id: int
    league_id: int | None
    season: int | None
    league: str | None
    date: datetime | None
    home: str | None
    away: str | None
    goals_home: int | None
    goals_away: int | None
    status: str | None
    state: str
    elapsed: int | None
    inferred: str | None
    reason: str | None
    unconfirmed_since: datetime | None
    """When the API last confirmed a state that should have changed since."""
    round: str | None = None


@dataclass(frozen=True)
class StandingsRow:
    """One team in the standings."""

    group: str
    rank: int | None
    team_id: int | None
    team: str | None
    played: int | None
    won: int | None
    drawn: int | None
    lost: int | None
    scored: int | None
    conceded: int | None
    points: int | None
    form: str | None


async def read_rows(store: Store, query: str, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of a query of the pages."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query(_PACKAGE, query), values)
        return await cursor.fetchall()


def to_match(row: dict[str, Any]) -> Match:
    return Match(**row, state=state_of(row["status"]).value)
