"""Polygons in KML and GML: rings as texts of coordinates, whatever the namespaces."""

from collections.abc import Iterator
from xml.etree import ElementTree

import shapely
from shapely import Polygon

_OUTER = ("outerBoundaryIs", "exterior")
_INNER = ("innerBoundaryIs", "interior")


def local_name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def read_polygons(root: ElementTree.Element) -> Iterator[shapely.Geometry]:
    """Yield the valid polygons below an element, with their holes.

    Raises ValueError for a ring that is none: coordinates are lon,lat, or pairs in a posList.
    """
    for element in root.iter():
        if local_name(element) == "Polygon":
            outer = [ring for one in _OUTER for ring in _rings(element, one)]
            inner = [ring for one in _INNER for ring in _rings(element, one)]
            if not outer:
                raise ValueError("a polygon without a ring")
            yield shapely.make_valid(Polygon(outer[0], inner))


def _rings(polygon: ElementTree.Element, side: str) -> Iterator[list[tuple[float, float]]]:
    """Yield the rings on one side of a polygon."""
    for boundary in polygon.iter():
        if local_name(boundary) != side:
            continue
        for one in boundary.iter():
            if local_name(one) == "coordinates":
                corners = [corner.split(",") for corner in (one.text or "").split()]
                yield [(float(lon), float(lat)) for lon, lat, *_ in corners]
            elif local_name(one) == "posList":
                numbers = [float(text) for text in (one.text or "").split()]
                yield list(zip(numbers[::2], numbers[1::2], strict=True))
