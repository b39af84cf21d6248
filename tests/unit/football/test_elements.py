"""Answers of API-Football become records that keep their keys whatever happens around them."""

import json
from typing import Any

import pytest

from hasat.errors import BrokenAnswerError
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.envelope import read_envelope
from hasat.sources.football.ingest.scopes import day_scope, fixture_scope, goals_scope, season_scope


def event(minute: int, player: int | None, kind: str = "Goal", **more: Any) -> dict[str, Any]:
    return {
        "time": {"elapsed": minute, "extra": more.pop("extra", None)},
        "team": {"id": 33, "name": "A"},
        "player": {"id": player, "name": more.pop("name", "P")},
        "assist": {"id": None, "name": None},
        "type": kind,
        "detail": more.pop("detail", "Normal Goal"),
        "comments": None,
    }


def fixture(number: int = 7, **blocks: Any) -> dict[str, Any]:
    return {
        "fixture": {"id": number, "timestamp": 1700000000, "status": {"short": "FT"}},
        "league": {"id": 39, "season": 2024, "round": "1"},
        "teams": {"home": {"id": 33}, "away": {"id": 34}},
        "goals": {"home": 2, "away": None},
        "score": {},
        **blocks,
    }


def keys(endpoint: str, parameters: dict[str, str], response: Any) -> list[str]:
    found = extract(endpoint, parameters, response)
    assert not found.unreadable
    return [element.key for element in found.elements]


def test_an_event_inserted_into_the_list_moves_no_other() -> None:
    events = [event(12, 1), event(30, 2, "Card"), event(30, 2, "Card"), event(80, None, name="X")]
    before = keys("fixtures/events", {"fixture": "7"}, events)
    assert len(set(before)) == 4
    after = keys("fixtures/events", {"fixture": "7"}, [event(5, 9, "Var"), *events[::-1]])
    assert set(before) < set(after)
    assert len(after) == 5


def test_a_corrected_detail_is_the_same_event() -> None:
    first = keys("fixtures/events", {"fixture": "7"}, [event(12, 1)])
    assert first == keys("fixtures/events", {"fixture": "7"}, [event(12, 1, detail="Own Goal")])


def test_a_fixture_told_with_and_without_its_blocks_is_the_same_record() -> None:
    blocks: dict[str, Any] = {"events": [event(1, 2)], "lineups": [], "statistics": []}
    plain = extract("fixtures", {"date": "2024-01-01"}, [fixture()])
    full = extract("fixtures", {"ids": "7"}, [fixture(**blocks, players=[])])
    assert plain.elements[0] == full.elements[0]
    assert [one.dataset for one in full.elements] == ["fixtures", "fixture_events"]
    assert full.scopes == [fixture_scope("fixture_events", 7)]


def test_events_of_the_moment_do_not_stand_for_all() -> None:
    live = extract("fixtures", {"live": "all"}, [fixture(events=[event(1, 2)])])
    assert [one.dataset for one in live.elements] == ["fixtures", "fixture_events"]
    assert live.scopes == []


def test_no_events_are_an_answer_where_the_rest_is_told_and_nothing_where_it_is_not() -> None:
    def scopes(**told: Any) -> set[str]:
        blocks = {"events": [], "lineups": [], "statistics": [], "players": []}
        row = fixture(**(blocks | told))
        return {one.dataset for one in extract("fixtures", {"ids": "7"}, [row]).scopes}

    assert scopes(lineups=[{"team": {"id": 33}}]) == {"fixture_events", "fixture_lineups"}
    # The rest cannot be taken back by a list that is empty.
    assert scopes(events=[event(1, 2)]) == {"fixture_events"}
    assert scopes() == set()
    assert scopes(events=None, lineups=[{"team": {"id": 33}}]) == set()


def test_a_match_that_ended_without_goals_has_none_whatever_its_list_of_events_says() -> None:
    def scopes(goals: tuple[Any, Any], short: str = "FT", **told: Any) -> list[Any]:
        blocks = {"events": [], "lineups": [], "statistics": [], "players": []}
        row = fixture(**(blocks | told))
        row["fixture"]["status"] = {"short": short}
        row["goals"] = dict(zip(("home", "away"), goals, strict=True))
        return extract("fixtures", {"ids": "7"}, [row]).scopes

    nobody = [goals_scope(7, detail) for detail in ("Normal Goal", "Own Goal", "Penalty")]
    assert scopes((0, 0)) == nobody
    # The API lacks the goals of the first; the others may have some yet, or shots from the mark.
    assert scopes((1, 0)) == scopes((0, 0), "HT") == scopes((None, None)) == []
    assert scopes((0, 0), "PEN") == scopes((False, 0)) == []
    # A card is no goal.
    assert scopes((0, 0), events=[event(1, 2)]) == [fixture_scope("fixture_events", 7)]


def test_an_event_that_says_less_is_kept_too() -> None:
    bare = {"time": {"elapsed": 1}, "type": "Var"}
    assert keys("fixtures/events", {"fixture": "7"}, [bare]) == ["7:1:None:Var:-"]


def test_an_event_of_no_team_is_kept_and_a_list_that_is_none_is_set_aside() -> None:
    assert keys("fixtures/events", {"fixture": "7"}, [event(1, 2) | {"team": None}]) == [
        "7:1:None:Goal:2"
    ]
    row = fixture(events={"a": event(1, 2)}, lineups=None, statistics=[], players=[])
    found = extract("fixtures", {"ids": "7"}, [row])
    assert [(one.dataset, one.reason) for one in found.unreadable] == [
        ("fixture_events", "events is not a list")
    ]
    assert found.scopes == []


def test_a_whole_season_covers_its_fixtures_and_a_day_covers_none() -> None:
    season = {"league": "39", "season": "2024"}
    assert extract("fixtures", season, [fixture()]).scopes == [season_scope("fixtures", 39, 2024)]
    there = season | {"timezone": "Europe/Istanbul"}
    assert extract("fixtures", there, [fixture()]).scopes == [season_scope("fixtures", 39, 2024)]
    assert extract("fixtures", season | {"from": "2024-01-01"}, [fixture()]).scopes == []
    assert extract("fixtures", {"date": "2024-01-01"}, [fixture()]).scopes == []


def test_an_empty_table_removes_nothing_but_nobody_injured_is_an_answer() -> None:
    season = {"league": "39", "season": "2024"}
    for endpoint in ("fixtures", "standings", "players/topscorers"):
        assert extract(endpoint, season, []).scopes == []
    # A table without lines, a team without players: the same, written otherwise.
    hollow = {"league": {"id": 39, "season": 2024, "standings": [[], []]}}
    assert extract("standings", season, [hollow]).scopes == []
    blocks = {"lineups": [], "statistics": [], "players": [{"team": {"id": 33}, "players": []}]}
    found = extract("fixtures", {"ids": "7"}, [fixture(events=[event(1, 2)], **blocks)])
    assert found.scopes == [fixture_scope("fixture_events", 7)]
    assert extract("injuries", {"date": "2024-01-01"}, []).scopes == [
        day_scope("injuries", "2024-01-01")
    ]


def test_every_group_of_a_table_is_kept_also_where_a_team_stands_in_several() -> None:
    def line(team: int, group: str | None) -> dict[str, Any]:
        return {"rank": 1, "team": {"id": team}, "group": group, "points": 3}

    groups = [[line(1, "A"), line(2, "A")], [line(1, "B")], [line(1, "A")], [line(1, None)]]
    told = [{"league": {"id": 128, "season": 2025, "standings": groups}}]
    found = keys("standings", {"league": "128", "season": "2025"}, told)
    assert len(set(found)) == 5


def test_players_without_an_id_are_told_apart() -> None:
    def player(number: int | None, name: str) -> dict[str, Any]:
        return {"player": {"id": number, "name": name}, "statistics": [{}]}

    block = [player(0, "A"), player(0, "B"), player(None, "B"), player(5, "C")]
    told = [{"team": {"id": 33}, "players": block}]
    assert keys("fixtures/players", {"fixture": "7"}, told) == [
        "7:33:-A",
        "7:33:-B",
        "7:33:-B:2",
        "7:33:5",
    ]


def test_an_injury_is_kept_also_where_its_match_is_unknown() -> None:
    def injury(fixture: Any) -> dict[str, Any]:
        return {"player": {"id": 5}, "team": {"id": 33}, "fixture": {"id": fixture}, "league": {}}

    told = [injury(99), injury(None), injury(None) | {"fixture": None}]
    assert keys("injuries", {"date": "2024-01-01"}, told) == ["99:33:5", ":33:5", ":33:5:2"]
    assert extract("injuries", {"date": "2024-01-01"}, [injury("x")]).unreadable


def test_world_is_a_country() -> None:
    world = {"name": "World", "code": None, "flag": None}
    assert keys("countries", {}, [world]) == ["World"]


def test_what_cannot_be_read_is_set_aside_and_blocks_removals() -> None:
    season = {"league": "39", "season": "2024"}
    broken = fixture(8) | {"fixture": {"id": "eight"}}
    found = extract("fixtures", season, [fixture(), broken])
    assert [element.key for element in found.elements] == ["7"]
    assert found.scopes == []
    [aside] = found.unreadable
    assert (aside.dataset, aside.body) == ("fixtures", broken)
    assert "fixture.id" in aside.reason


@pytest.mark.parametrize("row", [None, 3, "x", [], {}, {"team": None}, {"team": {"id": True}}])
def test_nonsense_never_stops_the_rest(row: Any) -> None:
    for endpoint in ("teams", "fixtures", "standings", "injuries", "leagues", "teams/statistics"):
        found = extract(endpoint, {}, [row])
        assert not found.elements
        assert len(found.unreadable) == 1
        assert found.scopes == []


def test_a_filtered_answer_is_a_partial_one() -> None:
    found = extract("fixtures/lineups", {"fixture": "7", "type": "startXI"}, [{"team": {"id": 1}}])
    assert found.partial
    assert found.scopes == []


def envelope(**other: Any) -> bytes:
    told = {
        "get": "fixtures",
        "parameters": [],
        "errors": [],
        "results": 0,
        "paging": {"current": 1, "total": 1},
        "response": [],
    }
    return json.dumps(told | other).encode()


def test_empty_lists_and_objects_stand_for_one_another() -> None:
    nothings: list[Any] = [[], {}, None, "", False]
    for empty in nothings:
        found = read_envelope(envelope(parameters=empty, errors=empty))
        assert not found.errors
        assert not found.parameters
        assert not found.response


def test_errors_are_read_as_list_and_as_object() -> None:
    assert read_envelope(envelope(errors={"plan": "no"})).errors == {"plan": "no"}
    assert read_envelope(envelope(errors=["no"])).errors == {"0": "no"}


def test_pages_are_counted_from_one() -> None:
    assert read_envelope(envelope(paging={"current": 0, "total": 1})).page == 1
    assert read_envelope(envelope(paging=None)).pages == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"response": []}'])
def test_what_is_no_envelope_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        read_envelope(body)
