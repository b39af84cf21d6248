"""Line-ups on a pitch and the chart of points, from whatever the API publishes."""

from itertools import pairwise
from typing import Any

import pytest

from hasat.sources.football.pages.chart import points_chart
from hasat.sources.football.pages.pitch import read_lineup


def player(name: str, grid: Any = None, pos: Any = None) -> dict[str, Any]:
    return {"player": {"id": 1, "name": name, "number": 7, "pos": pos, "grid": grid}}


def names(body: Any) -> list[list[str]]:
    return [[one.name for one in line] for line in read_lineup(body).lines]


def test_places_of_the_grid_make_lines() -> None:
    starting = [player("B", "2:1"), player("G", "1:1"), player("A", "2:2")]
    assert names({"startXI": starting}) == [["G"], ["A", "B"]]


def test_without_places_the_formation_makes_lines() -> None:
    starting = [player(name) for name in "GABCD"]
    assert names({"startXI": starting, "formation": "2-2"}) == [["G"], ["A", "B"], ["C", "D"]]
    # A formation for another number of players says nothing.
    assert names({"startXI": starting, "formation": "4-4-2"}) == []


def test_without_a_formation_positions_make_lines() -> None:
    starting = [player("A", pos="D"), player("G", pos="G"), player("B", pos="F")]
    assert names({"startXI": starting}) == [["G"], ["A"], ["B"]]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"startXI": None, "substitutes": 3, "formation": 442, "coach": None, "team": None},
        {"startXI": [None, 3, {}, {"player": None}], "team": {"colors": {"player": "red"}}},
        {"startXI": [player("A", "0:1"), player("B", [1])], "formation": "-"},
    ],
)
def test_anything_may_be_missing(body: Any) -> None:
    lineup = read_lineup(body)
    assert lineup.lines == []
    assert lineup.shirt is None


@pytest.mark.parametrize(("colour", "number"), [("ffffff", "000000"), ("101050", "ffffff")])
def test_numbers_are_readable_on_the_shirt(colour: str, number: str) -> None:
    shirt = read_lineup({"team": {"colors": {"player": {"primary": colour}}}}).shirt
    assert shirt is not None
    assert (shirt.fill, shirt.number) == (colour, number)


@pytest.mark.parametrize("colour", ["red", "fff", '000000"><script>', None, 7])
def test_other_texts_are_no_colours(colour: Any) -> None:
    assert read_lineup({"team": {"colors": {"player": {"primary": colour}}}}).shirt is None


def test_a_team_that_did_not_play_keeps_its_points() -> None:
    chart = points_chart({1: ("A", {1: 3, 3: 6}), 2: ("B", {1: 0, 2: 1, 3: 1})})
    assert chart is not None
    assert chart.rounds == [1, 2, 3]
    assert chart.table == [("A", [3, 3, 6]), ("B", [0, 1, 1])]


def test_leading_teams_and_the_chosen_one_have_colours() -> None:
    teams = {n: (f"T{n}", {1: 0, 2: 30 - n}) for n in range(1, 21)}
    chart = points_chart(teams, chosen=17)
    assert chart is not None
    coloured = {line.team_id: line.colour for line in chart.lines if line.colour}
    assert coloured == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 17: 6}
    places = sorted(line.label_y for line in chart.lines if line.colour)
    assert all(later - earlier >= 14 for earlier, later in pairwise(places))


def test_one_round_is_no_chart() -> None:
    assert points_chart({1: ("A", {1: 3})}) is None
    assert points_chart({}) is None
