"""Query parameters of the parcels: valid ones are parsed, others rejected."""

import re
from urllib.parse import parse_qsl

import pytest

from hasat.errors import UsageError
from hasat.sources.tkgm.selection import MAX_LIMIT, Box, Selection, parse_selection


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=ten",
        "limit=",
        "bbox=1,2,3",
        "bbox=a,b,c,d",
        "bbox=1,2,nan,4",
        "bbox=1,5,2,4",
        "bbox=1000,2,3,4",
        "lat=39.9",
        "lat=39.9&lon=200",
        "lat=1&lon=1&bbox=1,1,2,2",
        "datetime=yesterday",
        "datetime=../..",
        "datetime=2021-01-01T00:00:00Z/2020-01-01T00:00:00Z",
        "datetime=0001-01-01T00:00:00%2B14:00",
        "after=%00",
    ],
)
def test_invalid_parameters_are_rejected(query: str) -> None:
    with pytest.raises(UsageError):
        parse_selection(dict(parse_qsl(query, keep_blank_values=True)))


def test_no_parameters_select_everything() -> None:
    assert parse_selection({}) == Selection()
    assert parse_selection({"limit": "9" * 40}).limit == MAX_LIMIT


def test_a_box_may_cross_the_antimeridian() -> None:
    box = parse_selection({"bbox": "170,-10,-170,10"}).box
    assert box is not None
    assert box.halves == (Box(170, -10, 180, 10), Box(-180, -10, -170, 10))
    assert box.polygon.area == pytest.approx(400)


def test_a_point_is_a_box_without_size() -> None:
    box = parse_selection({"lat": "39.9", "lon": "32.85"}).box
    assert box == Box(32.85, 39.9, 32.85, 39.9)
    assert box.polygon.geom_type == "Point"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bbox": "1,2,3"}, "incomplete or not numbers"),
        ({"bbox": "1,2,3,99"}, "not on the earth"),
        ({"mahalleId": "abc"}, "`mahalleId` is 'abc'; it must be a number."),
        ({"alan": "1 OR 1=1"}, "`alan` is '1 OR 1=1'; it must be a number."),
    ],
)
def test_an_error_names_the_parameter_that_was_given(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_selection(given)
