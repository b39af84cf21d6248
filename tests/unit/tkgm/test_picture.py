"""A picture shows parcels at their place and leaves their holes open."""

from pathlib import Path

import pytest
import shapely
from PIL import Image
from shapely import Geometry
from shapely import Point as Place

from hasat.errors import UsageError
from hasat.sources.tkgm.picture import draw
from hasat.sources.tkgm.registry.wire import Point
from hasat.sources.tkgm.scan.candidates import UnknownArea

AREA = shapely.box(32.84, 39.89, 32.85, 39.90)


def pixel(path: Path, place: Geometry) -> tuple[int, int, int]:
    """Return the colour at a place."""
    with Image.open(path) as image:
        west, south, east, north = AREA.bounds
        lon, lat = shapely.get_coordinates(place)[0]
        ground = 1600 - 2 * 30
        high = ground
        wide = ground * 0.767
        x = 30 + (lon - west) / (east - west) * wide
        y = 30 + (north - lat) / (north - south) * high
        found = image.convert("RGB").getpixel((round(x), round(y)))
    assert isinstance(found, tuple)
    return (int(found[0]), int(found[1]), int(found[2]))


def test_parcels_holes_and_unknown_areas(tmp_path: Path) -> None:
    hole = shapely.box(32.843, 39.893, 32.845, 39.895)
    parcel = shapely.box(32.842, 39.892, 32.846, 39.896).difference(hole)
    unknown = UnknownArea(shapely.box(32.847, 39.897, 32.849, 39.899), 0.5)
    path = tmp_path / "map.png"
    draw(path, AREA, [parcel], [Point(39.891, 32.841)], [unknown])
    green = pixel(path, Place(32.8425, 39.8925))
    inside = pixel(path, Place(32.844, 39.894))
    around = pixel(path, Place(32.8475, 39.8925))
    orange = pixel(path, Place(32.848, 39.898))
    assert inside == around
    assert len({green, inside, orange}) == 3


def test_an_unsupported_extension_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"map\.xyz"):
        draw(tmp_path / "map.xyz", AREA, [], [], [])
