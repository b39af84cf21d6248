"""The endpoints whose data are always mirrored for the followed leagues."""

from hasat.sources.football.endpoints.declaration import (
    Endpoint,
    Minute,
    Number,
    NumberIfAny,
    Parameter,
    ParameterIfAny,
    Player,
    PlayerIfAny,
    Rule,
    Text,
    Whatever,
    column,
    dataset,
    key_column,
    stored,
)

_LEAGUE = column("league_id", "integer", "league.id")
_SEASON = column("season", "integer", "league.season")
_TEAM = column("team_id", "integer", "team.id")
_PLAYER = column("player_id", "integer", "player.id")
_FIXTURE = key_column("fixture_id", 1)
KEYED_SEASON = (key_column("league_id", 1), key_column("season", 2))
WHOLE = Rule()
BY_SEASON = Rule({"league": "league_id", "season": "season"})
BY_FIXTURE = Rule({"fixture": "fixture_id"})

FIXTURES = Endpoint(
    "fixtures",
    dataset(
        "fixtures",
        "Matches: when, who, state and score",
        *stored(
            column("fixture_id", "integer", "fixture.id"),
            _LEAGUE,
            _SEASON,
            column("round", path="league.round"),
            column("date", "timestamp", "fixture.timestamp"),
            column("status_short", path="fixture.status.short"),
            column("elapsed", "integer", "fixture.status.elapsed"),
            column("home_team_id", "integer", "teams.home.id"),
            column("away_team_id", "integer", "teams.away.id"),
            column("goals_home", "integer", "goals.home"),
            column("goals_away", "integer", "goals.away"),
        ),
    ),
    key=(Number("fixture.id"),),
    rules=(BY_SEASON,),
)

MIRRORED = (
    Endpoint(
        "timezone",
        dataset("timezones", "Time zones the API supports", *stored(column("name", path=()))),
        key=(Text(),),
        rules=(WHOLE,),
    ),
    Endpoint(
        "countries",
        dataset(
            "countries",
            "Countries with competitions, and the World",
            *stored(column("name"), column("code")),
        ),
        # The key is the name, since World has no code.
        key=(Text("name"),),
        rules=(WHOLE,),
    ),
    Endpoint(
        "leagues",
        dataset(
            "leagues",
            "Leagues and cups with their seasons and coverage",
            *stored(
                _LEAGUE,
                column("name", path="league.name"),
                column("type", path="league.type"),
                column("country", path="country.name"),
            ),
        ),
        key=(Number("league.id"),),
        rules=(WHOLE,),
    ),
    Endpoint(
        "teams",
        dataset(
            "teams",
            "Teams and their venues",
            *stored(
                _TEAM,
                column("name", path="team.name"),
                column("country", path="team.country"),
                column("venue_id", "integer", "venue.id"),
            ),
        ),
        key=(Number("team.id"),),
    ),
    FIXTURES,
    Endpoint(
        "fixtures/events",
        dataset(
            "fixture_events",
            "Goals, cards, substitutions and video decisions",
            *stored(
                _FIXTURE,
                column("elapsed", "integer", "time.elapsed"),
                column("extra", "integer", "time.extra"),
                _TEAM,
                _PLAYER,
                column("type"),
                column("detail"),
            ),
        ),
        # Events have no id, and their position in the list may change.
        key=(
            Parameter("fixture", 0),
            Minute("time"),
            Whatever("team.id"),
            Whatever("type"),
            PlayerIfAny("player"),
        ),
        numbered=True,
        rules=(BY_FIXTURE,),
        filters=frozenset({"type", "team", "player"}),
        coverage=("fixtures", "events"),
    ),
    Endpoint(
        "fixtures/lineups",
        dataset(
            "fixture_lineups", "Line-ups by team", *stored(_FIXTURE, _TEAM, column("formation"))
        ),
        key=(Parameter("fixture", 0), Number("team.id")),
        rules=(BY_FIXTURE,),
        filters=frozenset({"type", "team", "player"}),
        coverage=("fixtures", "lineups"),
    ),
    Endpoint(
        "fixtures/statistics",
        dataset(
            "fixture_statistics", "Shots, passes and possession by team", *stored(_FIXTURE, _TEAM)
        ),
        key=(Parameter("fixture", 0), Number("team.id")),
        rules=(BY_FIXTURE,),
        filters=frozenset({"type", "team"}),
        coverage=("fixtures", "statistics_fixtures"),
    ),
    Endpoint(
        "fixtures/players",
        dataset(
            "fixture_players",
            "Statistics of each player in a match",
            *stored(
                _FIXTURE,
                key_column("team_id", 2),
                _PLAYER,
                column("name", path="player.name"),
            ),
        ),
        # Several players of a team may have the id 0 or none.
        key=(Parameter("fixture", 0), Number("team.id", 0), Player("player")),
        rows=("players",),
        numbered=True,
        rules=(BY_FIXTURE,),
        filters=frozenset({"team"}),
        coverage=("fixtures", "statistics_players"),
    ),
    Endpoint(
        "standings",
        dataset(
            "standings",
            "Lines of every group of a league's table",
            *stored(
                *KEYED_SEASON,
                column("group_name", path="group"),
                column("rank", "integer"),
                _TEAM,
                column("points", "integer"),
            ),
        ),
        # A team may be in several groups, and twice in one.
        key=(
            Number("league.id", 0),
            Number("league.season", 0),
            Whatever("group"),
            Number("team.id"),
        ),
        rows=("league.standings", ""),
        numbered=True,
        rules=(BY_SEASON,),
        coverage=("standings",),
    ),
    Endpoint(
        "injuries",
        dataset(
            "injuries",
            "Injuries and suspensions",
            *stored(
                column("fixture_id", "integer", "fixture.id"),
                column("fixture_date", "date", "fixture.date"),
                _LEAGUE,
                _SEASON,
                _TEAM,
                _PLAYER,
                column("type", path="player.type"),
                column("reason", path="player.reason"),
            ),
        ),
        # Some refer to an unknown match, or to none.
        key=(NumberIfAny("fixture.id"), Whatever("team.id"), Player("player")),
        numbered=True,
        rules=(
            BY_SEASON,
            BY_FIXTURE,
            Rule({"date": "fixture_date"}, day_of="fixture.timestamp"),
        ),
        empty_is_complete=True,
        coverage=("injuries",),
        checked=("fixture.timestamp",),
    ),
    Endpoint(
        "players/topscorers",
        dataset(
            "top_scorers",
            "The top scorers of a league's season",
            *stored(
                *KEYED_SEASON,
                _PLAYER,
                column("team_id", "integer", "statistics.0.team.id"),
                column("goals", "integer", "statistics.0.goals.total"),
            ),
        ),
        key=(Parameter("league", 0), Parameter("season", 0), Player("player")),
        numbered=True,
        rules=(BY_SEASON,),
        coverage=("top_scorers",),
    ),
    Endpoint(
        "teams/statistics",
        dataset(
            "team_statistics",
            "Season statistics of teams",
            *stored(_LEAGUE, _SEASON, _TEAM, column("form")),
        ),
        key=(
            Number("league.id"),
            Number("league.season"),
            Number("team.id"),
            ParameterIfAny("date"),
        ),
        coverage=("standings",),
    ),
)
