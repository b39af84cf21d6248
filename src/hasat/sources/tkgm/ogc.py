"""Documents of OGC API Features, Part 1: Core, for the parcels."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from hasat.http.routes import dumps
from hasat.sources.tkgm.density import Cell, ScanSummary
from hasat.sources.tkgm.queries import Extent, Page
from hasat.sources.tkgm.selection import Box
from hasat.sources.tkgm.source import PARCELS

GEOJSON = "application/geo+json"
JSON = "application/json"
OPENAPI = "application/vnd.oai.openapi+json;version=3.1"
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
CONFORMS_TO = (
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
)
_TITLE = "Cadastral parcels"
_ABOUT = (
    "Parcels of the Turkish land registry that have been scanned: coordinates have five decimals, "
    "`fetchedAt` is the time of the registry's last response. For information only."
)


@dataclass(frozen=True)
class Documents:
    """Build the documents, with links to the address under which the caller sees this server."""

    server: str

    @property
    def root(self) -> str:
        return f"{self.server}/api/v1/{PARCELS.name}"

    @property
    def collection_url(self) -> str:
        return f"{self.root}/collections/{PARCELS.name}"

    def landing(self) -> dict[str, Any]:
        """Return the landing page, which links to everything else."""
        related = (("changes", "Changes"), ("archives", "Archives"), ("digest", "State digest"))
        return {
            "title": f"Hasat: {_TITLE.lower()}",
            "description": _ABOUT,
            "links": [
                _link(self.root, "self", JSON, "This page"),
                _link(f"{self.server}/openapi.json", "service-desc", OPENAPI, "API definition"),
                _link(f"{self.server}/docs", "service-doc", "text/html", "API documentation"),
                _link(f"{self.root}/conformance", "conformance", JSON, "Conformance classes"),
                _link(f"{self.root}/collections", "data", JSON, "The collections"),
                *(_link(f"{self.root}/{path}", "related", JSON, title) for path, title in related),
            ],
        }

    def conformance(self) -> dict[str, Any]:
        return {"conformsTo": list(CONFORMS_TO)}

    def collections(self, extent: Extent) -> dict[str, Any]:
        return {
            "links": [_link(f"{self.root}/collections", "self", JSON, "This page")],
            "collections": [self.collection(extent)],
        }

    def collection(self, extent: Extent) -> dict[str, Any]:
        """Return the one collection; an extent that is not known yet is omitted."""
        bounds: dict[str, Any] = {}
        if extent.box is not None:
            bounds["spatial"] = {"bbox": [list(extent.box)], "crs": CRS84}
        if extent.first is not None and extent.last is not None:
            bounds["temporal"] = {"interval": [[_utc(extent.first), _utc(extent.last)]]}
        return {
            "id": PARCELS.name,
            "title": _TITLE,
            "description": _ABOUT,
            "itemType": "feature",
            "crs": [CRS84],
            **({"extent": bounds} if bounds else {}),
            "links": [
                _link(self.collection_url, "self", JSON, "This collection"),
                _link(f"{self.collection_url}/items", "items", GEOJSON, "The parcels"),
            ],
        }

    def items(self, page: Page, params: dict[str, str]) -> str:
        """Return a page of parcels, with a link to the next page if there is one."""
        items = f"{self.collection_url}/items"
        links = [
            _link(_with_params(items, params), "self", GEOJSON, "This page"),
            _link(self.collection_url, "collection", JSON, "The collection"),
        ]
        if page.after is not None:
            following = {**params, "after": page.after}
            links.append(_link(_with_params(items, following), "next", GEOJSON, "The next page"))
        about = {
            "type": "FeatureCollection",
            "timeStamp": _utc(datetime.now(UTC)),
            "numberMatched": page.matched,
            "numberReturned": len(page.features),
            "links": links,
        }
        return f'{dumps(about)[:-1]},"features":[{",".join(page.features)}]}}'

    def item(self, key: str, feature: str) -> str:
        """Return one parcel with its links."""
        items, here = f"{self.collection_url}/items", quote(key, safe="")
        links = [
            _link(f"{items}/{here}", "self", GEOJSON, "This parcel"),
            _link(self.collection_url, "collection", JSON, "The collection"),
            _link(f"{self.root}/{here}/history", "version-history", JSON, "History"),
        ]
        return f'{feature[:-1]},"links":{dumps(links)}}}'


EXAMPLE = Extent(1, Box(29.05734, 40.98171, 29.05773, 40.98208), None, None)
EXAMPLE_FEATURE = {
    "type": "Feature",
    "id": "147766/3106/258",
    "bbox": list(EXAMPLE.box or ()),
    "geometry": {
        "type": "Polygon",
        "coordinates": [
            [[29.05752, 40.98208], [29.05734, 40.9818], [29.05761, 40.98171], [29.05752, 40.98208]]
        ],
    },
    "properties": {
        "mahalleId": 147766,
        "adaNo": "3106",
        "parselNo": "258",
        "alan": 816.27,
        "fetchedAt": "2026-11-02T06:04:11.000214Z",
    },
}


def box_polygon(box: Box) -> dict[str, Any]:
    """Return a box as a GeoJSON polygon."""
    west, south, east, north = (round(side, 6) for side in box)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def density(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return cells as features; `share` is relative to the fullest cell."""
    fullest = max((cell.parcels for cell in cells), default=1)
    return {
        "type": "FeatureCollection",
        "numberMatched": sum(cell.parcels for cell in cells),
        "features": [
            {
                "type": "Feature",
                "geometry": box_polygon(cell.box),
                "properties": {"parcels": cell.parcels, "share": round(cell.parcels / fullest, 3)},
            }
            for cell in cells
        ],
    }


def outlines(parcels: Sequence[tuple[str, str]]) -> str:
    """Return outlines as features that have only a key."""
    features = (
        f'{{"type":"Feature","id":{dumps(key)},"properties":{{}},"geometry":{outline}}}'
        for key, outline in parcels
    )
    return f'{{"type":"FeatureCollection","features":[{",".join(features)}]}}'


def scans(summaries: Sequence[ScanSummary]) -> dict[str, Any]:
    """Return the areas of scans as features."""
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "id": scan.id,
                "geometry": scan.area,
                "properties": {
                    **scan.method,
                    "beganAt": _utc(scan.began_at),
                    "finishedAt": None if scan.finished_at is None else _utc(scan.finished_at),
                    "asked": scan.queries,
                    "found": scan.found,
                },
            }
            for scan in summaries
        ],
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _with_params(url: str, params: dict[str, str]) -> str:
    return f"{url}?{urlencode(params, safe=',:/')}" if params else url


def _link(href: str, rel: str, kind: str, title: str) -> dict[str, str]:
    return {"href": href, "rel": rel, "type": kind, "title": title}
