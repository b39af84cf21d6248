"""Responses of the registry are parsed correctly in both of its formats."""

import json
import math
import random
from typing import Any

import pytest
from shapely import MultiPolygon, Polygon

from hasat.errors import BrokenAnswerError
from hasat.sources.tkgm.geometry import geodesic_area
from hasat.sources.tkgm.registry.wire import (
    Parcel,
    is_daily_limit,
    is_not_found,
    parse_message,
    parse_object,
    parse_outline,
    parse_parcel,
    parse_places,
    parse_square_metres,
)

SQUARE = [[29.0, 41.0], [29.001, 41.0], [29.001, 41.001], [29.0, 41.001], [29.0, 41.0]]
HOLE = [[29.0002, 41.0002], [29.0002, 41.0004], [29.0004, 41.0004], [29.0002, 41.0002]]


def feature(geometry: Any, **properties: Any) -> bytes:
    given = {"mahalleId": 1162, "adaNo": "2705", "parselNo": "15", "durum": "1", **properties}
    return json.dumps({"type": "Feature", "geometry": geometry, "properties": given}).encode()


def read_parcel(body: bytes) -> Parcel:
    return parse_parcel(parse_object(body))


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
def test_an_area_in_each_format_of_the_registry(text: str, area: float | None) -> None:
    assert parse_square_metres(text) == area


@pytest.mark.parametrize("text", ["1.234", "1,234"])
def test_the_outline_decides_an_ambiguous_area(text: str) -> None:
    assert parse_square_metres(text, 1300.0) == 1234
    assert parse_square_metres(text, 1.1) == 1.234


def test_every_area_is_the_same_in_both_formats() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(2000):
        area = round(math.exp(dice.uniform(math.log(2), math.log(2e7))), 2)
        by_point = f"{area:,.2f}"
        by_number = by_point.translate(str.maketrans(",.", ".,"))
        assert parse_square_metres(by_point) == parse_square_metres(by_number) == area


def test_the_same_parcel_by_point_and_by_number_has_one_key_and_one_area() -> None:
    outline = square(36)
    point = read_parcel(feature(outline, alan="1,295.00", mahalleAd="Remzi Oğuz Arik"))
    number = read_parcel(feature(outline, alan="1.295,00", mahalleAd="Remzi Oğuz Arık"))
    assert point.key == number.key == (1162, "2705", "15")
    assert point.area == number.area == 1295
    assert point.properties["mahalleAd"] == "Remzi Oğuz Arik"


def test_the_geodesic_area_of_a_known_square() -> None:
    outline = parse_outline(square(100))
    assert outline is not None
    assert geodesic_area(outline) == pytest.approx(10_000, rel=0.005)


def test_holes_and_several_polygons_are_preserved() -> None:
    far = [[[x + 1, y] for x, y in SQUARE]]
    outline = parse_outline({"type": "MultiPolygon", "coordinates": [[SQUARE, HOLE], far]})
    assert isinstance(outline, MultiPolygon)
    assert sum(len(part.interiors) for part in outline.geoms) == 1


def test_an_outline_has_one_canonical_form() -> None:
    turned = [*SQUARE[2:-1], *SQUARE[:2], SQUARE[2]]
    first = parse_outline({"type": "Polygon", "coordinates": [SQUARE]})
    assert first is not None
    for ring in (turned, SQUARE[::-1], [SQUARE[0], *SQUARE]):
        other = parse_outline({"type": "Polygon", "coordinates": [ring]})
        assert other is not None
        assert other.wkb == first.wkb
    assert isinstance(first, Polygon)
    assert first.exterior.is_ccw


@pytest.mark.parametrize("successors", ["", "{", "[]", '{"features": 3}', '{"features": [{}]}'])
def test_a_passive_parcel_has_no_outline_and_its_successors_are_data(successors: str) -> None:
    parcel = read_parcel(feature(None, durum="0", gittigiParselListe=successors))
    assert parcel.geometry is None
    assert parcel.properties["gittigiParselListe"] == successors


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
def test_a_body_without_a_parcel_is_rejected(body: bytes) -> None:
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
def test_not_found_in_every_form(body: str) -> None:
    message = parse_message(body.encode())
    assert message is not None
    assert is_not_found(message)
    assert not is_daily_limit(message)


@pytest.mark.parametrize(
    "body",
    [
        '{"Message":"Günlük sorgu limitini aştınız."}',
        "<string>GÜNLÜK SORGU LİMİTİNİ AŞTINIZ</string>",
        "Gunluk limit asildi",
    ],
)
def test_the_daily_limit_in_every_form(body: str) -> None:
    message = parse_message(body.encode())
    assert message is not None
    assert is_daily_limit(message)
    assert not is_not_found(message)


def test_other_messages_are_neither() -> None:
    message = parse_message(b'{"Message":"No HTTP resource was found that matches the request."}')
    assert message is not None
    assert not is_daily_limit(message)
    assert not is_not_found(message)
    assert parse_message(b"{}") is None
    assert parse_message(b"") is None


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
    ankara, istanbul = parse_places(json.dumps(listed).encode())
    assert (ankara.id, ankara.name, istanbul.name) == (28, "Ankara", "İstanbul")
    assert ankara.boundary is not None
    assert istanbul.boundary is None
    with pytest.raises(BrokenAnswerError):
        parse_places(b'{"features": [{"properties": {"id": "x"}}]}')
