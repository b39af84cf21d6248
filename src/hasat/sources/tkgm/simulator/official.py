"""The official web feature service of the simulator: GetFeature with paging and a box."""

import base64
import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

import shapely

from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.simulator.cadastre import CadastreParcel

USER, PASSWORD = "sim", "sim"
_BOX = re.compile(r"BBOX\(geom,([-0-9.]+),([-0-9.]+),([-0-9.]+),([-0-9.]+)\)")


def is_permitted(header: str | None) -> bool:
    """Return whether an Authorization header has the simulator's credentials."""
    wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return header == f"Basic {wanted}"


def exception_report(text: str) -> str:
    return (
        '<?xml version="1.0"?><ows:ExceptionReport xmlns:ows="http://www.opengis.net/ows">'
        f"<ows:Exception><ows:ExceptionText>{escape(text)}</ows:ExceptionText></ows:Exception>"
        "</ows:ExceptionReport>"
    )


def select(
    parcels: Sequence[CadastreParcel], condition: str, start: int, most: int
) -> list[CadastreParcel]:
    """Return a page of the parcels that intersect the box of a CQL filter."""
    found = _BOX.fullmatch(condition.replace(" ", ""))
    if found is None:
        raise ValueError("the filter is not BBOX(geom,...)")
    west, south, east, north = map(float, found.groups())
    area = shapely.box(west, south, east, north)
    inside = [one for one in parcels if one.outline.intersects(area)]
    return sorted(inside, key=lambda one: one.key)[start : start + most]


def feature_collection(parcels: Sequence[CadastreParcel]) -> str:
    """Return parcels as the service does: GML 2 with lon,lat and Turkish names of fields."""
    members = "".join(map(_member, parcels))
    return (
        '<?xml version="1.0" encoding="UTF-8"?><wfs:FeatureCollection'
        ' xmlns:wfs="http://www.opengis.net/wfs" xmlns:gml="http://www.opengis.net/gml"'
        f' xmlns:TKGM="http://www.tkgm.gov.tr">{members}</wfs:FeatureCollection>'
    )


def _member(parcel: CadastreParcel) -> str:
    properties = parcel.feature()["properties"]
    fields = {
        "adano": parcel.ada,
        "parselno": parcel.parsel,
        "tapumahalleref": parcel.mahalle_id,
        "tapualan": f"{parcel.square_metres:.2f}",
        "tapucinsaciklama": properties["nitelik"],
        "durum": "1",
        "kmdurum": properties["zeminKmdurum"],
        "sistemguncellemetarihi": "2026-10-01",
    }
    texts = "".join(
        f"<TKGM:{name}>{escape(str(value))}</TKGM:{name}>" for name, value in fields.items()
    )
    polygons = "".join(
        f"<gml:polygonMember>{_polygon(part)}</gml:polygonMember>"
        for part in polygons_of(parcel.outline)
    )
    outline = f"<gml:MultiPolygon>{polygons}</gml:MultiPolygon>"
    number = f"parseller.{parcel.ada}-{parcel.parsel}"
    return (
        f'<gml:featureMember><TKGM:parseller fid="{number}">{texts}'
        f"<TKGM:geom>{outline}</TKGM:geom></TKGM:parseller></gml:featureMember>"
    )


def _polygon(polygon: shapely.Polygon) -> str:
    inner = "".join(
        f"<gml:innerBoundaryIs>{_ring(one)}</gml:innerBoundaryIs>" for one in polygon.interiors
    )
    outer = f"<gml:outerBoundaryIs>{_ring(polygon.exterior)}</gml:outerBoundaryIs>"
    return f"<gml:Polygon>{outer}{inner}</gml:Polygon>"


def _ring(ring: shapely.LinearRing) -> str:
    corners = " ".join(f"{x:.5f},{y:.5f}" for x, y, *_ in ring.coords)
    return f"<gml:LinearRing><gml:coordinates>{corners}</gml:coordinates></gml:LinearRing>"
