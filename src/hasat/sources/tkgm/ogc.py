"""The parcels as OGC API Features, Part 1: Core, tells of them: documents that link on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from hasat.http.routes import dumps
from hasat.sources.tkgm.density import Cell, ScanLine
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
    "Parcels of the Turkish land registry as far as they have been scanned: coordinates have five "
    "decimals, `fetchedAt` says when a parcel was last told. For information only."
)


@dataclass(frozen=True)
class Pages:
    """The documents, with links that begin where the caller sees this server."""

    server: str

    @property
    def root(self) -> str:
        return f"{self.server}/api/v1/{PARCELS.name}"

    @property
    def collection_url(self) -> str:
        return f"{self.root}/collections/{PARCELS.name}"

    def landing(self) -> dict[str, Any]:
        """What everything else is found from."""
        doors = (("changes", "What changed"), ("archives", "Whole files"), ("digest", "Its state"))
        return {
            "title": f"Hasat: {_TITLE.lower()}",
            "description": _ABOUT,
            "links": [
                _link(self.root, "self", JSON, "This page"),
                _link(f"{self.server}/openapi.json", "service-desc", OPENAPI, "The API"),
                _link(f"{self.server}/docs", "service-doc", "text/html", "The API, for people"),
                _link(f"{self.root}/conformance", "conformance", JSON, "What it conforms to"),
                _link(f"{self.root}/collections", "data", JSON, "The collections"),
                *(_link(f"{self.root}/{door}", "related", JSON, says) for door, says in doors),
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
        """The one collection; an extent that is not known yet is left out."""
        told: dict[str, Any] = {}
        if extent.box is not None:
            told["spatial"] = {"bbox": [list(extent.box)], "crs": CRS84}
        if extent.first is not None and extent.last is not None:
            told["temporal"] = {"interval": [[_utc(extent.first), _utc(extent.last)]]}
        return {
            "id": PARCELS.name,
            "title": _TITLE,
            "description": _ABOUT,
            "itemType": "feature",
            "crs": [CRS84],
            **({"extent": told} if told else {}),
            "links": [
                _link(self.collection_url, "self", JSON, "This collection"),
                _link(f"{self.collection_url}/items", "items", GEOJSON, "The parcels"),
            ],
        }

    def items(self, page: Page, asked: dict[str, str]) -> str:
        """A page of parcels, with a link to the next one if there is more."""
        items = f"{self.collection_url}/items"
        links = [
            _link(_with(items, asked), "self", GEOJSON, "This page"),
            _link(self.collection_url, "collection", JSON, "The collection"),
        ]
        if page.after is not None:
            on = {**asked, "after": page.after}
            links.append(_link(_with(items, on), "next", GEOJSON, "The next page"))
        about = {
            "type": "FeatureCollection",
            "timeStamp": _utc(datetime.now(UTC)),
            "numberMatched": page.matched,
            "numberReturned": len(page.features),
            "links": links,
        }
        return f'{dumps(about)[:-1]},"features":[{",".join(page.features)}]}}'

    def item(self, key: str, feature: str) -> str:
        """One parcel with its links."""
        items, here = f"{self.collection_url}/items", quote(key, safe="")
        links = [
            _link(f"{items}/{here}", "self", GEOJSON, "This parcel"),
            _link(self.collection_url, "collection", JSON, "The collection"),
            _link(f"{self.root}/{here}/history", "version-history", JSON, "Its history"),
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


def ground(box: Box) -> dict[str, Any]:
    """A box as a GeoJSON polygon."""
    west, south, east, north = (round(side, 6) for side in box)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def density(cells: Sequence[Cell]) -> dict[str, Any]:
    """Cells as features; `share` is of the fullest."""
    most = max((cell.parcels for cell in cells), default=1)
    return {
        "type": "FeatureCollection",
        "numberMatched": sum(cell.parcels for cell in cells),
        "features": [
            {
                "type": "Feature",
                "geometry": ground(cell.box),
                "properties": {"parcels": cell.parcels, "share": round(cell.parcels / most, 3)},
            }
            for cell in cells
        ],
    }


def told(parcels: Sequence[tuple[str, str]]) -> str:
    """Outlines as features, with no more than their keys."""
    features = (
        f'{{"type":"Feature","id":{dumps(key)},"properties":{{}},"geometry":{outline}}}'
        for key, outline in parcels
    )
    return f'{{"type":"FeatureCollection","features":[{",".join(features)}]}}'


def scans(lines: Sequence[ScanLine]) -> dict[str, Any]:
    """Scans as features: their areas."""
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "id": line.id,
                "geometry": line.area,
                "properties": {
                    **line.method,
                    "beganAt": _utc(line.began_at),
                    "finishedAt": None if line.finished_at is None else _utc(line.finished_at),
                    "asked": line.asked,
                    "found": line.found,
                },
            }
            for line in lines
        ],
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _with(url: str, asked: dict[str, str]) -> str:
    return f"{url}?{urlencode(asked, safe=',:/')}" if asked else url


def _link(href: str, rel: str, kind: str, title: str) -> dict[str, str]:
    return {"href": href, "rel": rel, "type": kind, "title": title}
