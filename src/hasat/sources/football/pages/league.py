"""The page of a league's season: table, form, points over the rounds, scorers and matches."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.pages import PageRequest
from hasat.sources.football.pages.chart import PointsChart, points_chart
from hasat.sources.football.pages.data import Match, StandingsRow, read_rows, to_match

_MATCHES_AROUND_NOW = 10


@dataclass(frozen=True)
class Round:
    """A numbered round of the season's main stage."""

    number: int
    name: str
    has_results: bool


@dataclass(frozen=True)
class Scorer:
    """A player with goals; `computed` if the figures are sums of the matches' details."""

    player_id: int | None
    player: str | None
    team: str | None
    goals: int | None
    assists: int | None
    computed: bool


@dataclass(frozen=True)
class LeaguePage:
    """The data of the page; `table` is the API's own, or computed after the chosen round."""

    league_id: int
    season: int
    name: str
    country: str | None
    seasons: Sequence[int]
    rounds: Sequence[Round]
    round: int | None
    team: int | None
    """The team that the chart emphasises, besides the leading ones."""
    table: Sequence[StandingsRow]
    computed: bool
    chart: PointsChart | None
    scorers: Sequence[Scorer]
    matches: Sequence[Match]


async def league(request: PageRequest) -> LeaguePage:
    """Load the season of a league."""
    number, season = request.number("league"), request.number("season")
    assert number is not None
    assert season is not None
    of_season = {"league": number, "season": season}
    [found] = await read_rows(request.store, "season", **of_season)
    if found["name"] is None and not found["matches"]:
        raise NotFoundError(
            msg("The mirror has nothing of league {league}.", league=number),
            remedy=msg("The page Football lists the leagues."),
        )
    rounds = [Round(**row) for row in await read_rows(request.store, "rounds", **of_season)]
    asked = request.number("round")
    chosen = next((one for one in rounds if one.number == asked), None)
    table = [] if chosen else await _standings(request, "standings", of_season)
    computed = not table
    if computed:
        until = chosen.number if chosen else None
        table = await _standings(request, "table_after", {**of_season, "round": until})
    points = await read_rows(request.store, "points", **of_season)
    scorers = await read_rows(request.store, "scorers", **of_season)
    matches = await read_rows(
        request.store,
        "season_matches",
        **of_season,
        name=chosen.name if chosen else None,
        now=await request.store.now(),
        limit=_MATCHES_AROUND_NOW,
    )
    team = request.number("team")
    return LeaguePage(
        league_id=number,
        season=season,
        name=found["name"] or str(number),
        country=found["country"],
        seasons=found["seasons"],
        rounds=rounds,
        round=chosen.number if chosen else None,
        team=team,
        table=table,
        computed=computed,
        chart=points_chart(_lines(points), team),
        scorers=[Scorer(**row) for row in scorers],
        matches=[to_match(row) for row in matches],
    )


async def _standings(
    request: PageRequest, query: str, values: dict[str, Any]
) -> Sequence[StandingsRow]:
    return [StandingsRow(**row) for row in await read_rows(request.store, query, **values)]


def _lines(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[str, dict[int, int]]]:
    """Return each team's name and its points by round."""
    names: dict[int, str] = {}
    points: dict[int, dict[int, int]] = defaultdict(dict)
    for row in rows:
        names[row["team_id"]] = row["team"] or str(row["team_id"])
        points[row["team_id"]][row["round"]] = row["points"]
    return {team: (names[team], by_round) for team, by_round in points.items()}
