"""What the registry answers is read as it is meant, in both of its dialects."""

import json
import math
import random
from typing import Any

import pytest
from shapely import MultiPolygon, Polygon

from hasat.errors import BrokenAnswerError
from hasat.sources.tkgm.registry.outcomes import message_of, says_daily_limit, says_nothing_there
from hasat.sources.tkgm.registry.wire import (
    geodesic_area,
    read_area,
    read_outline,
    read_parcel,
    read_places,
)

SQUARE = [[29.0, 41.0], [29.001, 41.0], [29.001, 41.001], [29.0, 41.001], [29.0, 41.0]]
HOLE = [[29.0002, 41.0002], [29.0002, 41.0004], [29.0004, 41.0004], [29.0002, 41.0002]]


def feature(geometry: Any, **properties: Any) -> bytes:
    told = {"mahalleId": 1162, "adaNo": "2705", "parselNo": "15", "durum": "1", **properties}
    return json.dumps({"type": "Feature", "geometry": geometry, "properties": told}).encode()


def square(side_metres: float, lat: float = 39.9, lon: float = 32.8) -> dict[str, Any]:
    up = side_metres / 111_034
    along = up / math.cos(math.radians(lat))
    ring = [[lon, lat], [lon + along, lat], [lon + along, lat + up], [lon, lat + up], [lon, lat]]
    return {"type": "Polygon", "coordinates": [ring]}


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("1,295.00", 1295),
        ("1.295,00", 1295),
        ("57,509.00", 57509),
        ("816.27", 816.27),
        ("52,52", 52.52),
        ("500", 500),
        ("3.515,00", 3515),
        ("1.234.567", 1234567),
        ("1,234,567.5", 1234567.5),
        (" 12 345,67 ", 12345.67),
        ("1.234", 1.234),
        ("", None),
        ("yok", None),
        ("1.2.3,4.5", None),
    ],
)
def test_an_area_in_each_of_the_registrys_forms(text: str, area: float | None) -> None:
    assert read_area(text) == area


@pytest.mark.parametrize("text", ["1.234", "1,234"])
def test_the_outline_settles_what_can_be_read_twice(text: str) -> None:
    assert read_area(text, 1300.0) == 1234
    assert read_area(text, 1.1) == 1.234


def test_every_area_reads_the_same_in_both_dialects() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(2000):
        area = round(math.exp(dice.uniform(math.log(2), math.log(2e7))), 2)
        by_point = f"{area:,.2f}"
        by_number = by_point.translate(str.maketrans(",.", ".,"))
        assert read_area(by_point) == read_area(by_number) == area


def test_the_same_parcel_by_point_and_by_number_has_one_key_and_one_area() -> None:
    outline = square(36)
    point = read_parcel(feature(outline, alan="1,295.00", mahalleAd="Remzi Oğuz Arik"))
    number = read_parcel(feature(outline, alan="1.295,00", mahalleAd="Remzi Oğuz Arık"))
    assert point.key == number.key == (1162, "2705", "15")
    assert point.area == number.area == 1295
    assert point.properties["mahalleAd"] == "Remzi Oğuz Arik"


def test_the_geodesic_area_of_a_known_square() -> None:
    outline = read_outline(square(100))
    assert outline is not None
    assert geodesic_area(outline) == pytest.approx(10_000, rel=0.005)


def test_holes_and_several_grounds_are_kept() -> None:
    far = [[[x + 1, y] for x, y in SQUARE]]
    outline = read_outline({"type": "MultiPolygon", "coordinates": [[SQUARE, HOLE], far]})
    assert isinstance(outline, MultiPolygon)
    assert sum(len(part.interiors) for part in outline.geoms) == 1


def test_one_ground_has_one_spelling() -> None:
    turned = [*SQUARE[2:-1], *SQUARE[:2], SQUARE[2]]
    first = read_outline({"type": "Polygon", "coordinates": [SQUARE]})
    assert first is not None
    for ring in (turned, SQUARE[::-1], [SQUARE[0], *SQUARE]):
        other = read_outline({"type": "Polygon", "coordinates": [ring]})
        assert other is not None
        assert other.wkb == first.wkb
    assert isinstance(first, Polygon)
    assert first.exterior.is_ccw


def test_a_passive_parcel_names_what_became_of_it() -> None:
    heir = json.loads(feature(square(20), parselNo="16", alan="400,00"))
    told = json.dumps({"type": "FeatureCollection", "features": [heir]})
    parcel = read_parcel(
        feature(None, durum="0", gittigiParselListe=told, gittigiParselSebep="İfraz")
    )
    assert parcel.is_passive
    assert parcel.geometry is None
    assert [one.key for one in parcel.successors] == [(1162, "2705", "16")]
    assert parcel.successors[0].area == 400


@pytest.mark.parametrize("told", ["", "{", "[]", '{"features": 3}', '{"features": [{}]}'])
def test_an_unreadable_list_of_successors_costs_nothing_else(told: str) -> None:
    parcel = read_parcel(feature(square(20), gittigiParselListe=told))
    assert parcel.successors == ()
    assert parcel.properties["gittigiParselListe"] == told


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"Message": "Parsel Bulunamadi"}',
        b'{"type": "Feature", "geometry": null, "properties": null}',
        feature(None, mahalleId=None),
        feature(None, mahalleId="x"),
        feature(None, adaNo=None),
        feature(None, parselNo=" "),
        feature({"type": "Polygon", "coordinates": [[["a", "b"]]]}),
        feature({"type": "Polygon", "coordinates": 7}),
        feature({"type": "Cloud", "coordinates": [1]}),
        feature(5),
        feature({"type": "Polygon", "coordinates": []}),
        feature({"type": "Polygon", "coordinates": [[[10**400, 39], [32, 39], [32, 40]]]}),
        feature({"type": "Polygon", "coordinates": [[[32, 91], [33, 91], [33, 92], [32, 91]]]}),
        feature(None, nitelik="\ud800"),
        feature(None, nitelik="a\0b"),
        feature(None, mahalleId=10**20),
        feature(None, adaNo="1/2"),
        feature(None, parselNo=[1]),
    ],
)
def test_what_is_no_parcel_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        read_parcel(body)


def test_a_village_parcel_has_the_block_number_zero() -> None:
    assert read_parcel(feature(square(20), adaNo=0, parselNo=7)).key == (1162, "0", "7")


@pytest.mark.parametrize(
    "body",
    [
        '{"Message":"Parsel Bulunamadı: Enlem = 41,0369 - Boylam=28,9855"}',
        '{"message":"PARSEL BULUNAMADI"}',
        '"Parsel Bulunamadı"',
        '<string xmlns="http://schemas.microsoft.com/2003/10/Serialization/">'
        "Parsel Bulunamad&#305;</string>",
    ],
)
def test_nothing_there_in_every_form(body: str) -> None:
    message = message_of(body.encode())
    assert message is not None
    assert says_nothing_there(message)
    assert not says_daily_limit(message)


@pytest.mark.parametrize(
    "body",
    [
        '{"Message":"Günlük sorgu limitini aştınız."}',
        "<string>GÜNLÜK SORGU LİMİTİNİ AŞTINIZ</string>",
        "Gunluk limit asildi",
    ],
)
def test_the_daily_limit_in_every_form(body: str) -> None:
    message = message_of(body.encode())
    assert message is not None
    assert says_daily_limit(message)
    assert not says_nothing_there(message)


def test_other_messages_are_neither() -> None:
    message = message_of(b'{"Message":"No HTTP resource was found that matches the request."}')
    assert message is not None
    assert not says_daily_limit(message)
    assert not says_nothing_there(message)
    assert message_of(b"{}") is None
    assert message_of(b"") is None


def test_places_with_and_without_a_boundary() -> None:
    listed = {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "geometry": square(500),
                "properties": {"id": 28, "text": "Ankara"},
            },
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": []},
                "properties": {"id": 56, "text": "İstanbul"},
            },
        ],
    }
    ankara, istanbul = read_places(json.dumps(listed).encode())
    assert (ankara.id, ankara.name, istanbul.name) == (28, "Ankara", "İstanbul")
    assert ankara.boundary is not None
    assert istanbul.boundary is None
    with pytest.raises(BrokenAnswerError):
        read_places(b'{"features": [{"properties": {"id": "x"}}]}')
