"""The endpoints whose data the operator switches on (`football.collect`), since they cost requests.

An entry is all that an endpoint needs. Its `example` is an element of a response in which {names}
stand for the ids that the request is about; {n} counts the elements.
"""

from datetime import timedelta
from typing import Any

from hasat.sources.football.endpoints.declaration import (
    Endpoint,
    Holder,
    HolderOfMany,
    IdOrName,
    Number,
    Parameter,
    ParameterOrBlank,
    Plan,
    Player,
    Rule,
    Text,
    Whatever,
    column,
    dataset,
    key_column,
)
from hasat.sources.football.endpoints.mirrored import (
    BY_FIXTURE,
    BY_SEASON,
    FIXTURES,
    KEYED_SEASON,
    WHOLE,
)

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_MONTH = timedelta(days=30)
# The API corrects its top lists several times a week after a match.
_AFTER_MATCHES = Plan("season", None, settle=(_HOUR, _DAY, 3 * _DAY))
_BY_TEAM = Rule({"team": "team_id"})
_BY_HOLDER = (
    Rule({"player": "holder"}, by_holder=True),
    Rule({"coach": "holder"}, by_holder=True),
)
_TEAM: dict[str, Any] = {"id": "{team}", "name": "Team {team}", "logo": None}
_PLAYER: dict[str, Any] = {"id": "{player}", "name": "Player {player}", "photo": None}
_SEASON_OF_PLAYER: dict[str, Any] = {
    "team": _TEAM,
    "league": {"id": "{league}", "name": "League {league}", "season": "{season}"},
    "games": {"appearences": 12, "lineups": 10, "minutes": 900, "position": "Midfielder"},
    "goals": {"total": 3, "assists": "{n}", "conceded": 0, "saves": None},
    "cards": {"yellow": 2, "yellowred": 0, "red": 0},
}


def _top_list(name: str, summary: str, figure: str, path: str, flag: str) -> Endpoint:
    """Return a list of the twenty leading players of a season."""
    return Endpoint(
        f"players/{name.replace('_', '')}",
        dataset(
            name,
            summary,
            *KEYED_SEASON,
            column("player_id", "integer", "player.id"),
            column("team_id", "integer", "statistics.0.team.id"),
            column(figure, "integer", f"statistics.0.{path}"),
        ),
        key=(Parameter("league", 0), Parameter("season", 0), Player("player")),
        numbered=True,
        rules=(BY_SEASON,),
        coverage=(flag,),
        plan=_AFTER_MATCHES,
        example={"player": _PLAYER, "statistics": [_SEASON_OF_PLAYER]},
    )


_TROPHIES = dataset(
    "trophies",
    "Trophies of players and coaches",
    key_column("holder", 1, "text"),
    column("league"),
    column("country"),
    column("season"),
    column("place"),
)
_TROPHY = (Whatever("league"), Whatever("country"), Whatever("season"), Whatever("place"))
_SIDELINED = dataset(
    "sidelined",
    "Absences of players and coaches",
    key_column("holder", 1, "text"),
    column("type"),
    column("start", "date"),
    column("end", "date"),
)
_ABSENCE = (Whatever("type"), Whatever("start"))

OPTIONAL = (
    # Lists of the whole API, one request each.
    Endpoint(
        "leagues/seasons",
        dataset(
            "league_seasons", "Years for which the API has a season", column("year", "integer", ())
        ),
        key=(Number(),),
        rules=(WHOLE,),
        plan=Plan("api", _MONTH),
        example="{season}",
    ),
    Endpoint(
        "teams/countries",
        dataset("team_countries", "Countries of teams", column("name"), column("code")),
        key=(Text("name"),),
        rules=(WHOLE,),
        plan=Plan("api", _MONTH),
        example={"name": "Country {n}", "code": "C{n}", "flag": None},
    ),
    Endpoint(
        "players/seasons",
        dataset(
            "player_seasons", "Years with statistics of players", column("year", "integer", ())
        ),
        key=(Number(),),
        rules=(WHOLE,),
        plan=Plan("api", _MONTH),
        example="{season}",
    ),
    Endpoint(
        "odds/bookmakers",
        dataset("bookmakers", "Bookmakers", column("id", "integer"), column("name")),
        key=(Number("id"),),
        rules=(WHOLE,),
        plan=Plan("api", _WEEK),
        example={"id": "{n}", "name": "Bookmaker {n}"},
    ),
    Endpoint(
        "odds/bets",
        dataset("bets", "Kinds of bets before a match", column("id", "integer"), column("name")),
        key=(Number("id"),),
        rules=(WHOLE,),
        plan=Plan("api", _WEEK),
        example={"id": "{n}", "name": "Bet {n}"},
    ),
    Endpoint(
        "odds/live/bets",
        dataset(
            "live_bets", "Kinds of bets during a match", column("id", "integer"), column("name")
        ),
        key=(Number("id"),),
        rules=(WHOLE,),
        plan=Plan("api", _WEEK),
        example={"id": "{n}", "name": "Live bet {n}"},
    ),
    Endpoint(
        "odds/mapping",
        dataset(
            "odds_mapping",
            "Matches for which the API has odds",
            column("fixture_id", "integer", "fixture.id"),
            column("league_id", "integer", "league.id"),
            column("season", "integer", "league.season"),
            column("date", "timestamp", "fixture.date"),
        ),
        key=(Number("fixture.id"),),
        plan=Plan("api", _DAY, pages=5),
        example={
            "league": {"id": "{league}", "season": "{season}"},
            "fixture": {"id": "{n}", "date": "2026-08-01T15:00:00+00:00", "timestamp": 1785596400},
            "update": "2026-07-30T00:00:00+00:00",
        },
    ),
    # By the season of a league.
    Endpoint(
        "fixtures/rounds",
        dataset("rounds", "Rounds of a season", *KEYED_SEASON, column("name", path=())),
        key=(Parameter("league", 0), Parameter("season", 0), Text()),
        numbered=True,
        rules=(BY_SEASON,),
        plan=Plan("season", _DAY),
        example="Regular Season - {n}",
    ),
    Endpoint(
        "fixtures/rounds",
        dataset(
            "round_dates",
            "Days of each round of a season",
            *KEYED_SEASON,
            column("name", path="round"),
            column("first_day", "date", "dates.0"),
        ),
        key=(Parameter("league", 0), Parameter("season", 0), Text("round")),
        numbered=True,
        rules=(BY_SEASON,),
        fixed={"dates": "true"},
        plan=Plan("season", _DAY),
        example={"round": "Regular Season - {n}", "dates": ["2026-08-01", "2026-08-02"]},
    ),
    _top_list(
        "top_assists", "The top assists of a season", "assists", "goals.assists", "top_assists"
    ),
    _top_list(
        "top_yellow_cards",
        "The most yellow cards of a season",
        "yellow",
        "cards.yellow",
        "top_cards",
    ),
    _top_list("top_red_cards", "The most red cards of a season", "red", "cards.red", "top_cards"),
    Endpoint(
        "players",
        dataset(
            "player_statistics",
            "Season statistics of every player",
            *KEYED_SEASON,
            column("player_id", "integer", "player.id"),
            column("name", path="player.name"),
            column("team_id", "integer", "statistics.0.team.id"),
            column("minutes", "integer", "statistics.0.games.minutes"),
            column("goals", "integer", "statistics.0.goals.total"),
            column("assists", "integer", "statistics.0.goals.assists"),
        ),
        # The pages of a season are read at different times, so absence says nothing. Requests for
        # a player or a team name no league: their figures of all leagues have a key of their own.
        key=(ParameterOrBlank("league", 0), ParameterOrBlank("season", 0), Player("player")),
        numbered=True,
        coverage=("players",),
        plan=Plan("season", _WEEK, pages=35),
        example={"player": _PLAYER, "statistics": [_SEASON_OF_PLAYER]},
    ),
    # By team.
    Endpoint(
        "players/squads",
        dataset(
            "squads",
            "Players of a team",
            key_column("team_id", 1),
            column("player_id", "integer", "id"),
            column("name"),
            column("number", "integer"),
            column("position"),
        ),
        key=(Number("team.id", 0), Player()),
        rows=("players",),
        numbered=True,
        rules=(_BY_TEAM,),
        plan=Plan("team", _WEEK),
        example={
            "team": _TEAM,
            "players": [
                {
                    "id": "{player}",
                    "name": "Player {player}",
                    "age": 24,
                    "number": 7,
                    "position": "Midfielder",
                    "photo": None,
                }
            ],
        },
    ),
    Endpoint(
        "transfers",
        dataset(
            "transfers",
            "Transfers of each player",
            column("player_id", "integer", "player.id"),
            column("name", path="player.name"),
            column("updated", "timestamp", "update"),
        ),
        key=(IdOrName("player"),),
        numbered=True,
        plan=Plan("team", _WEEK),
        example={
            "player": {"id": "{player}", "name": "Player {player}"},
            "update": "2026-07-30T06:00:00+00:00",
            "transfers": [
                {
                    "date": "2026-07-01",
                    "type": "Free",
                    "teams": {"in": _TEAM, "out": {"id": None, "name": None, "logo": None}},
                }
            ],
        },
    ),
    Endpoint(
        "coachs",
        dataset(
            "coaches",
            "Coaches and their careers",
            column("coach_id", "integer", "id"),
            column("name"),
            column("team_id", "integer", "team.id"),
        ),
        key=(IdOrName(),),
        numbered=True,
        plan=Plan("team", _WEEK),
        example={
            "id": "{team}",
            "name": "Coach of {team}",
            "team": _TEAM,
            "career": [{"team": _TEAM, "start": "2025-07-01", "end": None}],
        },
    ),
    Endpoint(
        "teams/seasons",
        dataset(
            "team_seasons",
            "Years in which a team played",
            key_column("team_id", 1),
            column("year", "integer", ()),
        ),
        key=(Parameter("team", 0), Number()),
        rules=(_BY_TEAM,),
        plan=Plan("team", _MONTH),
        example="{season}",
    ),
    # By player.
    Endpoint(
        "players/profiles",
        dataset(
            "player_profiles",
            "Names, birth and size of players",
            column("player_id", "integer", "player.id"),
            column("name", path="player.name"),
            column("nationality", path="player.nationality"),
            column("born", "date", "player.birth.date"),
        ),
        key=(IdOrName("player"),),
        numbered=True,
        plan=Plan("player", 3 * _MONTH),
        example={
            "player": {
                **_PLAYER,
                "birth": {"date": "2002-02-02", "place": None, "country": "Türkiye"},
                "nationality": "Türkiye",
                "height": "180",
                "weight": "75",
            }
        },
    ),
    Endpoint(
        "players/teams",
        dataset(
            "player_teams",
            "Teams of a player with their seasons",
            key_column("player_id", 1),
            column("team_id", "integer", "team.id"),
            column("name", path="team.name"),
        ),
        key=(Parameter("player", 0), IdOrName("team")),
        numbered=True,
        rules=(Rule({"player": "player_id"}),),
        plan=Plan("player", 3 * _MONTH),
        example={"team": _TEAM, "seasons": ["{season}"]},
    ),
    Endpoint(
        "trophies",
        _TROPHIES,
        key=(Holder(level=0), *_TROPHY),
        numbered=True,
        rules=_BY_HOLDER,
        plan=Plan("player", 3 * _MONTH),
        example={"league": "Cup", "country": "Türkiye", "season": "2025/2026", "place": "Winner"},
    ),
    Endpoint(
        "sidelined",
        _SIDELINED,
        key=(Holder(level=0), *_ABSENCE),
        numbered=True,
        rules=_BY_HOLDER,
        plan=Plan("player", _MONTH),
        example={"type": "Hamstring Injury", "start": "2026-08-02", "end": "2026-08-20"},
    ),
    # By country.
    Endpoint(
        "venues",
        dataset(
            "venues",
            "Stadiums of a country",
            column("venue_id", "integer", "id"),
            column("name"),
            column("city"),
            column("country"),
            column("capacity", "integer"),
        ),
        key=(IdOrName(),),
        numbered=True,
        rules=(Rule({"country": "country"}),),
        plan=Plan("country", _MONTH),
        example={
            "id": "{n}",
            "name": "Stadium {n}",
            "address": None,
            "city": "City {n}",
            "country": "{country}",
            "capacity": 30000,
            "surface": "grass",
            "image": None,
        },
    ),
    # By match.
    Endpoint(
        "predictions",
        dataset(
            "predictions",
            "The API's predictions for a match",
            key_column("fixture_id", 1),
            column("winner_id", "integer", "predictions.winner.id"),
            column("advice", path="predictions.advice"),
            column("home", path="predictions.percent.home"),
            column("draw", path="predictions.percent.draw"),
            column("away", path="predictions.percent.away"),
        ),
        key=(Parameter("fixture", 0),),
        rules=(BY_FIXTURE,),
        coverage=("predictions",),
        plan=Plan("fixture", _DAY, before=2 * _DAY),
        example={
            "predictions": {
                "winner": {"id": "{team}", "name": "Team {team}", "comment": "Win or draw"},
                "advice": "Double chance",
                "percent": {"home": "45%", "draw": "45%", "away": "10%"},
            },
            "league": {"id": "{league}", "season": "{season}"},
        },
    ),
    Endpoint(
        "fixtures/statistics",
        dataset(
            "half_time_statistics",
            "Statistics of a match by half",
            key_column("fixture_id", 1),
            column("team_id", "integer", "team.id"),
        ),
        key=(Parameter("fixture", 0), Number("team.id")),
        rules=(BY_FIXTURE,),
        fixed={"half": "true"},
        filters=frozenset({"type", "team"}),
        coverage=("fixtures", "statistics_fixtures"),
        plan=Plan("fixture", None, after=3 * _DAY),
        example={
            "team": _TEAM,
            "statistics": [{"type": "Shots on Goal", "value": 5}],
            "statistics_1h": [{"type": "Shots on Goal", "value": 3}],
            "statistics_2h": [{"type": "Shots on Goal", "value": 2}],
        },
    ),
    Endpoint(
        "odds",
        dataset(
            "odds",
            "Odds before a match by bookmaker and bet; every movement is a change",
            key_column("fixture_id", 1),
            key_column("bookmaker_id", 2),
            column("bet_id", "integer", "id"),
            column("bet", path="name"),
        ),
        key=(Number("fixture.id", 0), Number("id", 1), Number("id")),
        rows=("bookmakers", "bets"),
        numbered=True,
        rules=(BY_FIXTURE,),
        coverage=("odds",),
        plan=Plan("fixture", 3 * _HOUR, before=7 * _DAY),
        example={
            "league": {"id": "{league}", "season": "{season}"},
            "fixture": {"id": "{fixture}", "timestamp": 1785596400},
            "update": "2026-07-30T00:00:00+00:00",
            "bookmakers": [
                {
                    "id": 8,
                    "name": "Bookmaker 8",
                    "bets": [
                        {
                            "id": 1,
                            "name": "Match Winner",
                            "values": [
                                {"value": "Home", "odd": "1.85"},
                                {"value": "Draw", "odd": "3.40"},
                                {"value": "Away", "odd": "4.20"},
                            ],
                        }
                    ],
                }
            ],
        },
    ),
    Endpoint(
        "fixtures/headtohead",
        # The matches of two teams go to the dataset of all matches.
        FIXTURES.dataset,
        key=FIXTURES.key,
        plan=Plan("pair", _MONTH, before=7 * _DAY),
        option="head_to_head",
    ),
    # While matches are in play.
    Endpoint(
        "odds/live",
        dataset(
            "live_odds",
            "Odds during a match by bet; every movement is a change",
            key_column("fixture_id", 1),
            column("bet_id", "integer", "id"),
            column("bet", path="name"),
        ),
        key=(Number("fixture.id", 0), Number("id")),
        rows=("odds",),
        numbered=True,
        plan=Plan("league", None, live=True),
        example={
            "fixture": {
                "id": "{fixture}",
                "status": {"long": "Second Half", "elapsed": 62, "seconds": "62:14"},
            },
            "league": {"id": "{league}", "season": "{season}"},
            "teams": {"home": {"id": "{team}", "goals": 1}, "away": {"id": "{team}", "goals": 0}},
            "status": {"stopped": False, "blocked": False, "finished": False},
            "update": "2026-08-01T16:20:14+00:00",
            "odds": [
                {
                    "id": 59,
                    "name": "Fulltime Result",
                    "values": [
                        {"value": "Home", "odd": "1.40", "main": None, "suspended": False},
                        {"value": "Away", "odd": "7.00", "main": None, "suspended": False},
                    ],
                }
            ],
        },
    ),
)

FORMS = tuple(
    Endpoint(
        several.name,
        several,
        key=(HolderOfMany("id", 0), *parts),
        rows=(several.name,),
        numbered=True,
        given=given,
        example={"id": "{n}", several.name: [example]},
    )
    for several, parts, example in (
        (_TROPHIES, _TROPHY, {"league": "Cup", "season": "2025/2026", "place": "Winner"}),
        (_SIDELINED, _ABSENCE, {"type": "Suspended", "start": "2026-08-02", "end": None}),
    )
    for given in ("players", "coachs")
)
"""Forms for several ids, which no job requests: responses that were stored elsewhere have them."""
