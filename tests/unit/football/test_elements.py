"""Extraction of records with stable keys from responses."""

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


def test_inserted_event_keeps_other_keys() -> None:
    events = [event(12, 1), event(30, 2, "Card"), event(30, 2, "Card"), event(80, None, name="X")]
    before = keys("fixtures/events", {"fixture": "7"}, events)
    assert len(set(before)) == 4
    after = keys("fixtures/events", {"fixture": "7"}, [event(5, 9, "Var"), *events[::-1]])
    assert set(before) < set(after)
    assert len(after) == 5


def test_corrected_detail_keeps_key() -> None:
    first = keys("fixtures/events", {"fixture": "7"}, [event(12, 1)])
    assert first == keys("fixtures/events", {"fixture": "7"}, [event(12, 1, detail="Own Goal")])


def test_fixture_with_and_without_blocks_is_same_record() -> None:
    blocks: dict[str, Any] = {"events": [event(1, 2)], "lineups": [], "statistics": []}
    plain = extract("fixtures", {"date": "2024-01-01"}, [fixture()])
    full = extract("fixtures", {"ids": "7"}, [fixture(**blocks, players=[])])
    assert plain.elements[0] == full.elements[0]
    assert [one.dataset for one in full.elements] == ["fixtures", "fixture_events"]
    assert full.scopes == [fixture_scope("fixture_events", 7)]


def test_live_events_alone_have_no_scope() -> None:
    live = extract("fixtures", {"live": "all"}, [fixture(events=[event(1, 2)])])
    assert [one.dataset for one in live.elements] == ["fixtures", "fixture_events"]
    assert live.scopes == []


def test_empty_events_have_scope_only_with_other_details() -> None:
    def scopes(**published: Any) -> set[str]:
        blocks = {"events": [], "lineups": [], "statistics": [], "players": []}
        row = fixture(**(blocks | published))
        return {one.dataset for one in extract("fixtures", {"ids": "7"}, [row]).scopes}

    assert scopes(lineups=[{"team": {"id": 33}}]) == {"fixture_events", "fixture_lineups"}
    # An empty list has no scope for other kinds of details.
    assert scopes(events=[event(1, 2)]) == {"fixture_events"}
    assert scopes() == set()
    assert scopes(events=None, lineups=[{"team": {"id": 33}}]) == set()


def test_match_ended_without_goals_has_scope_of_goals() -> None:
    def scopes(goals: tuple[Any, Any], short: str = "FT", **published: Any) -> list[Any]:
        blocks = {"events": [], "lineups": [], "statistics": [], "players": []}
        row = fixture(**(blocks | published))
        row["fixture"]["status"] = {"short": short}
        row["goals"] = dict(zip(("home", "away"), goals, strict=True))
        return extract("fixtures", {"ids": "7"}, [row]).scopes

    no_goals = [goals_scope(7, detail) for detail in ("Normal Goal", "Own Goal", "Penalty")]
    assert scopes((0, 0)) == no_goals
    # The first match has goals; the others may still get some, or had penalties.
    assert scopes((1, 0)) == scopes((0, 0), "HT") == scopes((None, None)) == []
    assert scopes((0, 0), "PEN") == scopes((False, 0)) == []
    # A card is no goal.
    assert scopes((0, 0), events=[event(1, 2)]) == [fixture_scope("fixture_events", 7)]


def test_event_with_missing_fields_is_a_record() -> None:
    bare = {"time": {"elapsed": 1}, "type": "Var"}
    assert keys("fixtures/events", {"fixture": "7"}, [bare]) == ["7:1:None:Var:-"]


def test_event_without_team_is_a_record_and_non_list_is_quarantined() -> None:
    assert keys("fixtures/events", {"fixture": "7"}, [event(1, 2) | {"team": None}]) == [
        "7:1:None:Goal:2"
    ]
    row = fixture(events={"a": event(1, 2)}, lineups=None, statistics=[], players=[])
    found = extract("fixtures", {"ids": "7"}, [row])
    assert [(one.dataset, one.reason) for one in found.unreadable] == [
        ("fixture_events", "events is not a list")
    ]
    assert found.scopes == []


def test_season_has_scope_and_day_has_none() -> None:
    season = {"league": "39", "season": "2024"}
    assert extract("fixtures", season, [fixture()]).scopes == [season_scope("fixtures", 39, 2024)]
    there = season | {"timezone": "Europe/Istanbul"}
    assert extract("fixtures", there, [fixture()]).scopes == [season_scope("fixtures", 39, 2024)]
    assert extract("fixtures", season | {"from": "2024-01-01"}, [fixture()]).scopes == []
    assert extract("fixtures", {"date": "2024-01-01"}, [fixture()]).scopes == []


def test_empty_table_has_no_scope_and_empty_injuries_have() -> None:
    season = {"league": "39", "season": "2024"}
    for endpoint in ("fixtures", "standings", "players/topscorers"):
        assert extract(endpoint, season, []).scopes == []
    # The same applies to a table without lines and a team without players.
    hollow = {"league": {"id": 39, "season": 2024, "standings": [[], []]}}
    assert extract("standings", season, [hollow]).scopes == []
    blocks = {"lineups": [], "statistics": [], "players": [{"team": {"id": 33}, "players": []}]}
    found = extract("fixtures", {"ids": "7"}, [fixture(events=[event(1, 2)], **blocks)])
    assert found.scopes == [fixture_scope("fixture_events", 7)]
    assert extract("injuries", {"date": "2024-01-01"}, []).scopes == [
        day_scope("injuries", "2024-01-01")
    ]


def test_team_in_several_groups_is_several_records() -> None:
    def line(team: int, group: str | None) -> dict[str, Any]:
        return {"rank": 1, "team": {"id": team}, "group": group, "points": 3}

    groups = [[line(1, "A"), line(2, "A")], [line(1, "B")], [line(1, "A")], [line(1, None)]]
    published = [{"league": {"id": 128, "season": 2025, "standings": groups}}]
    found = keys("standings", {"league": "128", "season": "2025"}, published)
    assert len(set(found)) == 5


def test_players_without_id_have_distinct_keys() -> None:
    def player(number: int | None, name: str) -> dict[str, Any]:
        return {"player": {"id": number, "name": name}, "statistics": [{}]}

    block = [player(0, "A"), player(0, "B"), player(None, "B"), player(5, "C")]
    published = [{"team": {"id": 33}, "players": block}]
    assert keys("fixtures/players", {"fixture": "7"}, published) == [
        "7:33:-A",
        "7:33:-B",
        "7:33:-B:2",
        "7:33:5",
    ]


def test_injury_with_unknown_match_is_a_record() -> None:
    def injury(fixture: Any) -> dict[str, Any]:
        return {"player": {"id": 5}, "team": {"id": 33}, "fixture": {"id": fixture}, "league": {}}

    published = [injury(99), injury(None), injury(None) | {"fixture": None}]
    assert keys("injuries", {"date": "2024-01-01"}, published) == ["99:33:5", ":33:5", ":33:5:2"]
    assert extract("injuries", {"date": "2024-01-01"}, [injury("x")]).unreadable


def test_world_is_a_country() -> None:
    world = {"name": "World", "code": None, "flag": None}
    assert keys("countries", {}, [world]) == ["World"]


def test_unreadable_element_is_quarantined_and_prevents_removals() -> None:
    season = {"league": "39", "season": "2024"}
    broken = fixture(8) | {"fixture": {"id": "eight"}}
    found = extract("fixtures", season, [fixture(), broken])
    assert [element.key for element in found.elements] == ["7"]
    assert found.scopes == []
    [aside] = found.unreadable
    assert (aside.dataset, aside.body) == ("fixtures", broken)
    assert "fixture.id" in aside.reason


@pytest.mark.parametrize("row", [None, 3, "x", [], {}, {"team": None}, {"team": {"id": True}}])
def test_malformed_row_does_not_affect_others(row: Any) -> None:
    for endpoint in ("teams", "fixtures", "standings", "injuries", "leagues", "teams/statistics"):
        found = extract(endpoint, {}, [row])
        assert not found.elements
        assert len(found.unreadable) == 1
        assert found.scopes == []


def test_filtered_response_is_partial() -> None:
    found = extract("fixtures/lineups", {"fixture": "7", "type": "startXI"}, [{"team": {"id": 1}}])
    assert found.partial
    assert found.scopes == []


def envelope(**other: Any) -> bytes:
    published = {
        "get": "fixtures",
        "parameters": [],
        "errors": [],
        "results": 0,
        "paging": {"current": 1, "total": 1},
        "response": [],
    }
    return json.dumps(published | other).encode()


def test_empty_lists_and_objects_are_equivalent() -> None:
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
def test_body_without_envelope_is_refused(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        read_envelope(body)
