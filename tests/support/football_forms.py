"""Responses in every form that API-Football documents, with the oddities that such APIs have.

Names and figures are invented. `FORMS` are (path, parameters, rows): what the response contains.
"""

import json
from typing import Any, NamedTuple

TEAM = {"id": 33, "name": "United", "logo": "https://example.org/33.png"}
NOBODY = {"id": None, "name": None, "logo": None}
MATCH: dict[str, Any] = {
    "fixture": {
        "id": 1,
        "referee": None,
        "timezone": "UTC",
        "date": "2019-08-11T15:30:00+00:00",
        "timestamp": 1565537400,
        "periods": {"first": 1565537400, "second": None},
        "venue": {"id": None, "name": "Park", "city": None},
        "status": {"long": "Match Finished", "short": "FT", "elapsed": 90, "extra": None},
    },
    "league": {"id": 39, "season": 2019, "round": "Regular Season - 1", "flag": None},
    "teams": {"home": {**TEAM, "winner": True}, "away": {"id": 34, "name": "N", "winner": False}},
    "goals": {"home": 1, "away": 0},
    "score": {"halftime": {"home": 0, "away": 0}, "penalty": {"home": None, "away": None}},
}
ABSENCE = {"type": "Suspended", "start": "2020-02-26", "end": None}
TROPHY = {"league": "Copa", "country": "South-America", "season": "2019 Brazil", "place": "Winner"}
EVENT = {
    "time": {"elapsed": 25, "extra": None},
    "team": TEAM,
    "player": {"id": None, "name": None},
    "assist": {"id": None, "name": None},
    "type": "Goal",
    "detail": "Normal Goal",
    "comments": None,
}


def _seasons_of(player: int | None) -> dict[str, Any]:
    figures = {
        "team": TEAM,
        "league": {"id": 61, "season": 2019},
        "games": {"appearences": 15, "minutes": None, "rating": "8.053333"},
        "goals": {"total": None, "assists": "6", "saves": None},
        "cards": {"yellow": 3, "yellowred": 1, "red": 0},
    }
    cup = {"team": TEAM, "league": {"id": None, "season": 2019}, "games": {"minutes": "90"}}
    birth = {"date": "0000-00-00", "place": None, "country": ""}
    who = {"id": player, "name": "N. Name", "age": None, "birth": birth, "height": "175 cm"}
    return {"player": who, "statistics": [figures, cup]}


def _player(number: int | None, name: str | None = "P. Player") -> dict[str, Any]:
    return {"id": number, "name": name, "age": None, "number": None, "position": "Attacker"}


def _moves(number: int | None) -> dict[str, Any]:
    free = {"date": "2019-07-15", "type": None, "teams": {"in": TEAM, "out": NOBODY}}
    odd = {"date": "040119", "type": "&pound; 5M", "teams": {"in": NOBODY, "out": TEAM}}
    who = {"id": number, "name": "M. Mover"}
    return {"player": who, "update": "2020-02-06T00:08:15+00:00", "transfers": [free, odd]}


def _coach(number: int | None) -> dict[str, Any]:
    career = [{"team": {**NOBODY, "name": "Old"}, "start": "2003-07-01", "end": None}]
    return {"id": number, "name": "C. Coach", "age": None, "team": None, "career": career}


def _odds(*bookmakers: int) -> dict[str, Any]:
    bets = [
        {"id": 1, "name": "Match Winner", "values": [{"value": "Home", "odd": "1.85"}]},
        {"id": 1, "name": "Match Winner", "values": []},
        {"id": 10, "name": None, "values": [{"value": 4, "odd": "7.00"}]},
    ]
    offers = [{"id": number, "name": f"B{number}", "bets": bets} for number in bookmakers]
    about = {"id": 1, "timezone": "UTC", "date": "2020-05-15T15:00:00+00:00", "timestamp": 15895}
    return {"league": {"id": 39, "season": 2019}, "fixture": about, "bookmakers": offers}


_LIVE_VALUES = [
    {"value": "Over", "odd": "2.5", "handicap": "8", "main": None, "suspended": False},
    {"value": "Over", "odd": "9", "handicap": "8", "main": False, "suspended": True},
]
_LIVE = {
    "fixture": {"id": 1, "status": {"long": "Second Half", "elapsed": 62, "seconds": "62:14"}},
    "league": {"id": 39, "season": 2019},
    "status": {"stopped": False, "blocked": False, "finished": False},
    "update": "2022-01-27T16:21:01+00:00",
    "odds": [{"id": 20, "name": "Corners", "values": _LIVE_VALUES}],
}
_LINE = {"rank": 1, "team": TEAM, "points": 3, "group": "A", "all": {"win": None}, "home": None}


class Form(NamedTuple):
    path: str
    parameters: dict[str, str]
    rows: Any
    records: int
    """How many records it has."""


_39 = {"league": "39", "season": "2019"}
_MATCH_1 = {"fixture": "1"}
FORMS = tuple(
    Form(*one)
    for one in (
        ("timezone", {}, ["Africa/Abidjan", "Europe/Istanbul"], 2),
        ("countries", {}, [{"name": "World", "code": None, "flag": None}], 1),
        ("countries", {"name": "england"}, [{"name": "England", "code": "GB-ENG"}], 1),
        ("leagues/seasons", {}, [2008, 2010], 2),
        (
            "leagues",
            {"id": "39"},
            [
                {
                    "league": {"id": 39, "name": "L", "type": "League"},
                    "country": {"name": "World", "code": None},
                    "seasons": [{"year": 2019, "start": "2019-08-09", "end": "2020-07-26"}],
                }
            ],
            1,
        ),
        ("teams", {"id": "33"}, [{"team": TEAM, "venue": {"id": None, "name": None}}], 1),
        ("teams/countries", {}, [{"name": "World", "code": None}, {"name": "Wales"}], 2),
        ("teams/seasons", {"team": "33"}, [2010, 2011], 2),
        (
            "teams/statistics",
            {**_39, "team": "33"},
            {"league": {"id": 39, "season": 2019}, "team": TEAM, "form": None, "": {}},
            1,
        ),
        ("teams/statistics", {**_39, "team": "34"}, [], 0),
        ("venues", {"id": "556"}, [{"id": 556, "name": "Old", "capacity": "76212"}], 1),
        (
            "venues",
            {"country": "England"},
            [{"id": 1, "country": "England"}, {"id": None, "name": "Park"}, {"id": 1}],
            3,
        ),
        (
            "standings",
            {"team": "33", "season": "2019"},
            [{"league": {"id": 39, "season": 2019, "standings": [[_LINE, _LINE], [_LINE]]}}],
            3,
        ),
        ("fixtures/rounds", {**_39, "current": "true"}, ["Final"], 1),
        ("fixtures/rounds", _39, ["Regular Season - 1", "Final", "Final"], 3),
        (
            "fixtures/rounds",
            {**_39, "dates": "true"},
            [
                {"round": "Final", "dates": ["2019-08-09", "2019-08-10"]},
                {"round": "1", "dates": []},
            ],
            2,
        ),
        ("fixtures", {"live": "all"}, [{**MATCH, "events": [EVENT]}], 2),
        ("fixtures/headtohead", {"h2h": "33-34"}, [MATCH], 1),
        ("fixtures/headtohead", {"h2h": "33-34", "last": "1"}, [{**MATCH, "events": []}], 1),
        (
            "fixtures/statistics",
            {**_MATCH_1, "half": "true"},
            [{"team": TEAM, "statistics": [], "statistics_1h": [], "statistics_2h": []}],
            1,
        ),
        (
            "fixtures/statistics",
            {**_MATCH_1, "team": "33", "type": "Total Shots"},
            [{"team": TEAM, "statistics": [{"type": "Ball Possession", "value": "32%"}]}],
            1,
        ),
        ("fixtures/events", {**_MATCH_1, "type": "goal"}, [EVENT, EVENT], 2),
        ("fixtures/lineups", _MATCH_1, [{"team": TEAM, "coach": None, "startXI": []}], 1),
        (
            "fixtures/players",
            _MATCH_1,
            [{"team": TEAM, "players": [{"player": {"id": 0}}, {"player": {"id": 0}}]}],
            2,
        ),
        (
            "injuries",
            {"ids": "1-2"},
            [
                {
                    "player": {"id": 1, "type": "Missing Fixture", "reason": None},
                    "team": TEAM,
                    "fixture": {"id": 1, "timestamp": 1565537400},
                    "league": {"id": 39, "season": 2019},
                }
            ],
            1,
        ),
        (
            "predictions",
            {"fixture": "1"},
            [
                {
                    "predictions": {
                        "winner": {"id": None, "name": None, "comment": None},
                        "under_over": "-3.5",
                        "percent": {"home": "45%", "draw": "45%", "away": "10%"},
                    },
                    "teams": {"home": {**TEAM, "last_5": {"goals": {"average": 0.6}}}},
                    "h2h": [MATCH],
                }
            ],
            1,
        ),
        ("coachs", {"search": "coach"}, [_coach(1), _coach(1), _coach(None)], 3),
        ("players/seasons", {"player": "276"}, [2010, 2011], 2),
        (
            "players/profiles",
            {"page": "2"},
            [{"player": _player(1)}, {"player": _player(1)}, {"player": _player(None)}],
            3,
        ),
        ("players", {"id": "276", "season": "2019"}, [_seasons_of(276)], 1),
        ("players", {"team": "33", "season": "2019"}, [_seasons_of(1), _seasons_of(1)], 2),
        ("players", {"league": "61", "search": "name"}, [_seasons_of(0), _seasons_of(None)], 2),
        ("players", {**_39, "page": "2"}, [_seasons_of(2), _seasons_of(2)], 2),
        (
            "players/squads",
            {"team": "33"},
            [{"team": TEAM, "players": [_player(1), _player(1), _player(None), _player(0, None)]}],
            4,
        ),
        (
            "players/squads",
            {"player": "276"},
            [{"team": team, "players": [_player(276)]} for team in (TEAM, {"id": 34})],
            2,
        ),
        (
            "players/teams",
            {"player": "276"},
            [{"team": TEAM, "seasons": [2009]}, {"team": {**NOBODY, "name": "U23"}, "seasons": []}],
            2,
        ),
        *(
            (f"players/{name}", _39, [_seasons_of(number) for number in (1, 1, None)], 3)
            for name in ("topscorers", "topassists", "topyellowcards", "topredcards")
        ),
        ("transfers", {"player": "35845"}, [_moves(35845)], 1),
        ("transfers", {"team": "463"}, [_moves(1), _moves(1), _moves(None)], 3),
        ("trophies", {"player": "276"}, [TROPHY, TROPHY], 2),
        ("trophies", {"coach": "2"}, [{**TROPHY, "season": None, "country": None}], 1),
        ("trophies", {"players": "276-278"}, [{"id": 276, "trophies": [TROPHY, TROPHY]}], 2),
        ("trophies", {"coachs": "2-6"}, [{"id": 2, "trophies": [TROPHY]}], 1),
        ("sidelined", {"player": "276"}, [ABSENCE, {"type": None, "start": None, "end": ""}], 2),
        (
            "sidelined",
            {"players": "276-278"},
            [{"id": 276, "sidelined": [ABSENCE]}, {"id": 278, "sidelined": []}],
            1,
        ),
        ("sidelined", {"coachs": "2-6"}, [{"id": 2, "sidelined": [ABSENCE]}], 1),
        ("odds/live", {}, [_LIVE, {**_LIVE, "fixture": {"id": 2}, "odds": []}], 1),
        ("odds/live/bets", {}, [{"id": 1, "name": "Corners"}, {"id": 2, "name": None}], 2),
        ("odds", {"fixture": "1", "bookmaker": "6"}, [_odds(6)], 3),
        ("odds", {"league": "39", "season": "2019", "page": "3"}, [_odds(6, 8), _odds()], 6),
        (
            "odds/mapping",
            {},
            [
                {
                    "league": {"id": 106, "season": 2019},
                    "fixture": {"id": 1, "date": "2020-05-29T18:30:00+00:00", "timestamp": 15},
                    "update": "2020-05-15T09:52:28+00:00",
                }
            ],
            1,
        ),
        ("odds/bookmakers", {"id": "6"}, [{"id": 6, "name": "B6"}], 1),
        ("odds/bets", {"search": "under"}, [{"id": 5, "name": "Over"}, {"id": 6, "name": None}], 2),
    )
)


def document(form: Form, **changes: Any) -> dict[str, Any]:
    """Return the response as the API sends it; PHP writes an empty object as a list."""
    rows = len(form.rows)
    return {
        "get": form.path,
        "parameters": form.parameters or [],
        "errors": [],
        "results": rows,
        "paging": {"current": 1, "total": 1},
        "response": form.rows,
        **changes,
    }


def form_id(form: Form) -> str:
    """Return the name of a form in the output of pytest."""
    return json.dumps([form.path, *form.parameters])
