"""Documents of OGC API Features for the parcels.

Part 1 (Core), Part 2 (coordinate reference systems), Part 3 (filters in CQL2 text) and the schema
of Part 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from hasat.http.routes import dumps
from hasat.sources.tkgm.filters.crs import CRS84, SUPPORTED, feature_in
from hasat.sources.tkgm.filters.queryables import QUERYABLES
from hasat.sources.tkgm.queries import Cell, Extent, Page, ScanSummary
from hasat.sources.tkgm.selection import Box
from hasat.sources.tkgm.source import PARCELS

GEOJSON = "application/geo+json"
JSON = "application/json"
OPENAPI = "application/vnd.oai.openapi+json;version=3.1"
SCHEMA = "application/schema+json"
_QUERYABLES_REL = "http://www.opengis.net/def/rel/ogc/1.0/queryables"
_SCHEMA_REL = "http://www.opengis.net/def/rel/ogc/1.0/schema"
CONFORMS_TO = (
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
    "http://www.opengis.net/spec/ogcapi-features-2/1.0/conf/crs",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/queryables",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/queryables-query-parameters",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/filter",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/features-filter",
    "http://www.opengis.net/spec/cql2/1.0/conf/cql2-text",
    "http://www.opengis.net/spec/cql2/1.0/conf/basic-cql2",
    "http://www.opengis.net/spec/cql2/1.0/conf/advanced-comparison-operators",
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
            "crs": list(SUPPORTED),
            "storageCrs": CRS84,
            **({"extent": bounds} if bounds else {}),
            "links": [
                _link(self.collection_url, "self", JSON, "This collection"),
                _link(f"{self.collection_url}/items", "items", GEOJSON, "The parcels"),
                _link(f"{self.collection_url}/queryables", _QUERYABLES_REL, SCHEMA, "Queryables"),
                _link(f"{self.collection_url}/schema", _SCHEMA_REL, SCHEMA, "Schema"),
            ],
        }

    def queryables(self) -> dict[str, Any]:
        """Return the properties that `filter` knows, as a JSON Schema."""
        return self._schema("queryables", additional=False)

    def schema(self) -> dict[str, Any]:
        """Return the properties of a parcel, with the type of its outline."""
        document = self._schema("schema", additional=True)
        outline = {
            "title": "Outline",
            "x-ogc-role": "primary-geometry",
            "format": "geometry-polygon-or-multipolygon",
        }
        key = {"title": "Key", "type": "string", "x-ogc-role": "id"}
        document["properties"] = {"id": key, "geometry": outline, **document["properties"]}
        return document

    def _schema(self, name: str, *, additional: bool) -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"{self.collection_url}/{name}",
            "title": _TITLE,
            "type": "object",
            "properties": {one.name: one.schema() for one in QUERYABLES.values()},
            "additionalProperties": additional,
        }

    def items(self, page: Page, params: dict[str, str], crs: str = CRS84) -> str:
        """Return a page of parcels, with a link to the next page if there is one."""
        features = [feature_in(one, crs) for one in page.features]
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
        return f'{dumps(about)[:-1]},"features":[{",".join(features)}]}}'

    def item(self, key: str, feature: str, crs: str = CRS84) -> str:
        """Return one parcel with its links."""
        feature = feature_in(feature, crs)
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
                    "foundAtLeast": scan.at_least,
                    "missingNumbers": scan.missing_numbers,
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
