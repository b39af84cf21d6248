"""What a request for parcels may say, and what is refused."""

from urllib.parse import parse_qsl

import pytest

from hasat.errors import UsageError
from hasat.sources.tkgm.selection import MOST, Box, Selection, read_selection


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
def test_what_cannot_be_understood_is_refused(query: str) -> None:
    with pytest.raises(UsageError):
        read_selection(dict(parse_qsl(query, keep_blank_values=True)))


def test_without_words_it_is_everything() -> None:
    assert read_selection({}) == Selection()
    assert read_selection({"limit": "9" * 40}).limit == MOST


def test_a_box_may_go_around_the_back_of_the_earth() -> None:
    box = read_selection({"bbox": "170,-10,-170,10"}).box
    assert box is not None
    assert box.halves == (Box(170, -10, 180, 10), Box(-180, -10, -170, 10))
    assert box.ground.area == pytest.approx(400)


def test_a_point_is_a_box_without_size() -> None:
    box = read_selection({"lat": "39.9", "lon": "32.85"}).box
    assert box == Box(32.85, 39.9, 32.85, 39.9)
    assert box.ground.geom_type == "Point"
