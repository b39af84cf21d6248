"""Parcels as OGC API Features: the applicable tests of Annex A of the standard, and GDAL."""

import json
import math
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import numpy as np
import pyarrow.parquet
import pyogrio
import pytest
import shapely
from anyio import run_process
from anyio.from_thread import BlockingPortal
from psycopg.types.json import Jsonb
from pyproj import Transformer

from hasat.api.app import create_app
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.tkgm.source import TKGM
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import throw_away_database
from hasat.testing.http import app_client, undocumented_operations
from support.parcels import SOUTH, STEP, WEST, parcel, publish_features, square, street

pytestmark = pytest.mark.anyio

CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
EPSG = "http://www.opengis.net/def/crs/EPSG/0/"
SCHEMA = "application/schema+json"
QUERYABLES_REL = "http://www.opengis.net/def/rel/ogc/1.0/queryables"
SCHEMA_REL = "http://www.opengis.net/def/rel/ogc/1.0/schema"
ROOT = "/api/v1/parcels"
ITEMS = f"{ROOT}/collections/parcels/items"
MIGRATIONS = [MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")]


@pytest.fixture(scope="module")
def street_settings(
    background: BlockingPortal, server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a database with the street, for tests that only read."""
    made = throw_away_database(server_url, MIGRATIONS)
    with background.wrap_async_context_manager(made) as database:
        settings = database.settings(tmp_path_factory.mktemp("town"))

        async def fill() -> None:
            async with open_store(settings, MIGRATIONS) as store:
                await publish_features(store, street())

        background.call(fill)
        yield settings


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@asynccontextmanager
async def client_for(settings: Settings) -> AsyncIterator[tuple[Store, httpx2.AsyncClient]]:
    async with open_store(settings, MIGRATIONS) as store:
        app = create_app(settings, store, Catalogue.of([], settings), [TKGM])
        async with app_client(app) as client:
            yield store, client


@pytest.fixture
async def client(street_settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_for(street_settings) as (_, client):
        yield client


async def get(client: httpx2.AsyncClient, url: str, media: str = "application/json") -> Any:
    response = await client.get(url)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == media
    return response.json()


async def found(client: httpx2.AsyncClient, query: str) -> list[str]:
    page = await get(client, f"{ITEMS}?limit=1000&{query}", "application/geo+json")
    assert page["numberMatched"] == page["numberReturned"] == len(page["features"])
    return [feature["id"] for feature in page["features"]]


def link(document: Any, rel: str) -> Any:
    (one,) = [link for link in document["links"] if link["rel"] == rel]
    return one


async def test_every_route_is_described(street_settings: Settings) -> None:
    async with open_store(street_settings, MIGRATIONS) as store:
        app = create_app(street_settings, store, Catalogue.of([], street_settings), [TKGM])
        assert undocumented_operations(app) == []


async def test_the_landing_page_links_to_everything(client: httpx2.AsyncClient) -> None:
    landing = await get(client, ROOT)
    for rel in ("self", "service-desc", "service-doc", "conformance", "data"):
        one = link(landing, rel)
        response = await client.get(one["href"])
        assert response.status_code == 200, one
    conformance = await get(client, link(landing, "conformance")["href"])
    core = "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core"
    assert core in conformance["conformsTo"]
    collections = await get(client, link(landing, "data")["href"])
    assert link(collections, "self")["href"].endswith(f"{ROOT}/collections")
    (listed,) = collections["collections"]
    collection = await get(client, link(listed, "self")["href"])
    assert collection == listed
    ((west, south, east, north),) = collection["extent"]["spatial"]["bbox"]
    assert (west, south) == (WEST, SOUTH)
    assert east > west
    assert north > south
    ((began, ended),) = collection["extent"]["temporal"]["interval"]
    assert began <= ended
    assert collection["storageCrs"] == collection["crs"][0] == CRS84
    outline = (await get(client, link(collection, SCHEMA_REL)["href"], SCHEMA))["properties"]
    assert outline["geometry"]["format"] == "geometry-polygon-or-multipolygon"
    queryables = (await get(client, link(collection, QUERYABLES_REL)["href"], SCHEMA))["properties"]
    assert queryables["alan"]["type"] == "number"
    page = await get(client, link(collection, "items")["href"], "application/geo+json")
    assert page["type"] == "FeatureCollection"
    assert page["timeStamp"].endswith("Z")


async def test_pages_return_every_parcel_once(client: httpx2.AsyncClient) -> None:
    url, seen, pages = f"{ITEMS}?limit=4", [], 0
    while url:
        page = await get(client, url, "application/geo+json")
        assert page["numberReturned"] == len(page["features"]) <= 4
        assert page["numberMatched"] == 27
        seen += [feature["id"] for feature in page["features"]]
        pages += 1
        url = next((one["href"] for one in page["links"] if one["rel"] == "next"), "")
    assert len(seen) == len(set(seen)) == 27
    assert pages == 7


async def test_the_parcels_of_a_drawn_area_are_a_file(client: httpx2.AsyncClient) -> None:
    """A triangle has fewer parcels than its bounding box."""
    west, south, size = WEST + STEP / 2, SOUTH + STEP / 2, 3 * STEP
    corners = ((west, south), (west + size, south), (west, south + 5 * STEP))
    area = " ".join(f"{lon:.5f},{lat:.5f}" for lon, lat in corners)
    found = await client.get(f"{ROOT}/area", params={"area": area, "f": "geojson"})
    assert found.status_code == 200
    keys = {one["properties"]["parselNo"] for one in found.json()["features"]}
    assert {"1", "2", "3", "4"} <= keys
    assert len(keys) < 10
    assert "attachment" in found.headers["content-disposition"]
    packed = await client.get(f"{ROOT}/area", params={"area": area, "f": "gpkg"})
    assert packed.content.startswith(b"SQLite format 3")
    for wrong in ({}, {"area": "1,1 2,2"}, {"area": area, "f": "exe"}):
        assert (await client.get(f"{ROOT}/area", params=wrong)).status_code == 400


async def test_the_default_limit_is_ten_and_a_high_limit_is_lowered(
    client: httpx2.AsyncClient,
) -> None:
    assert (await get(client, ITEMS, "application/geo+json"))["numberReturned"] == 10
    page = await get(client, f"{ITEMS}?limit=99999999999999", "application/geo+json")
    assert page["numberReturned"] == 27


async def test_one_parcel_by_its_key_in_every_form(client: httpx2.AsyncClient) -> None:
    page = await get(client, f"{ITEMS}?limit=1", "application/geo+json")
    (listed,) = page["features"]
    assert listed["id"] == "1162/101/1"
    assert listed["properties"]["alan"] == 9500
    for path in (
        f"{ITEMS}/1162%2F101%2F1",
        f"{ITEMS}/1162/101/1",
        f"{ROOT}/1162/101/1",
        f"{ROOT}/1162%2F101%2F1",
    ):
        one = await get(client, path, "application/geo+json")
        assert link(one, "self")["href"].endswith(f"{ITEMS}/1162%2F101%2F1")
        assert link(one, "collection")["href"].endswith("/collections/parcels")
        del one["links"]
        assert one == listed
    history = await get(client, f"{ROOT}/1162%2F101%2F1/history")
    assert [change["changeType"] for change in history["history"]] == ["added"]
    response = await client.get(f"{ITEMS}/1162/101/1")
    known = {"If-None-Match": response.headers["etag"]}
    assert (await client.get(f"{ITEMS}/1162/101/1", headers=known)).status_code == 304


def box(west: float, south: float, east: float, north: float) -> str:
    sides = (WEST + west * STEP, SOUTH + south * STEP, WEST + east * STEP, SOUTH + north * STEP)
    return "bbox=" + ",".join(f"{side:.6f}" for side in sides)


async def test_a_box_finds_parcels_that_intersect_it(client: httpx2.AsyncClient) -> None:
    assert await found(client, box(1.5, 0.2, 2.5, 0.8)) == ["1162/101/2", "1162/101/3"]
    assert len(await found(client, "bbox=-180,-90,180,90")) == 26
    assert len(await found(client, "bbox=-180,-90,-1000,180,90,9000")) == 26
    assert await found(client, "bbox=0,0,1,1") == []
    around = f"bbox=170,-90,{WEST + 0.5 * STEP},90"
    assert "1162/101/1" in await found(client, around)
    assert "1162/101/2" not in await found(client, around)


async def test_outlines_decide_not_bounding_boxes(client: httpx2.AsyncClient) -> None:
    # Inside the bounding box of the L-shaped parcel, but in no parcel.
    assert await found(client, box(2, 7, 3, 8)) == []
    assert await found(client, box(0.5, 7, 3, 8)) == ["1162/102/1"]


async def test_the_parcel_at_a_point(client: httpx2.AsyncClient) -> None:
    at = f"lat={SOUTH + 0.5 * STEP}&lon={WEST + 3.5 * STEP}"
    assert await found(client, at) == ["1162/101/4"]
    page = await get(client, f"{ROOT}?{at}", "application/geo+json")
    assert [feature["id"] for feature in page["features"]] == ["1162/101/4"]
    page = await get(client, f"{ROOT}?{box(1.5, 0.2, 2.5, 0.8)}", "application/geo+json")
    assert page["numberMatched"] == 2


async def test_a_page_in_another_reference_system(client: httpx2.AsyncClient) -> None:
    degrees = (await get(client, f"{ITEMS}?limit=27", "application/geo+json"))["features"]
    for code in (4326, 3857, 5255):
        uri = f"{EPSG}{code}"
        response = await client.get(ITEMS, params={"limit": 27, "crs": uri})
        assert response.headers["content-crs"] == f"<{uri}>"
        there = Transformer.from_crs("OGC:CRS84", f"EPSG:{code}")
        for ours, theirs in zip(degrees, response.json()["features"], strict=True):
            if ours["geometry"] is None:
                assert theirs["geometry"] is None
                continue
            [ring], [moved] = ours["geometry"]["coordinates"], theirs["geometry"]["coordinates"]
            for (lon, lat), position in zip(ring, moved, strict=True):
                assert position == pytest.approx(there.transform(lon, lat), abs=0.001)
    response = await client.get(f"{ITEMS}/1162/101/1", params={"crs": f"{EPSG}4326"})
    assert response.headers["content-crs"] == f"<{EPSG}4326>"
    assert response.json()["geometry"]["coordinates"][0][0] == pytest.approx([SOUTH, WEST])


async def test_a_box_in_another_reference_system(client: httpx2.AsyncClient) -> None:
    sides = WEST + 1.5 * STEP, SOUTH + 0.2 * STEP, WEST + 2.5 * STEP, SOUTH + 0.8 * STEP
    west, south, east, north = sides
    swapped = f"bbox={south},{west},{north},{east}&bbox-crs={EPSG}4326"
    assert await found(client, swapped) == ["1162/101/2", "1162/101/3"]
    there = Transformer.from_crs("OGC:CRS84", "EPSG:5255")
    (n1, e1), (n2, e2) = there.transform(west, south), there.transform(east, north)
    metres = f"bbox={n1},{e1},{n2},{e2}&bbox-crs={EPSG}5255"
    assert await found(client, metres) == ["1162/101/2", "1162/101/3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("adaNo = '102'", ["1162/102/1"]),
        ("parselNo IN ('1', '9') AND adaNo <> '101'", ["1162/102/1", "1162/103/9"]),
        ("NOT (adaNo = '101' OR adaNo = '102')", ["1162/103/9"]),
        ("adaNo = '101' OR adaNo = '102' AND parselNo = '7'", "101"),
        ("mahalleId = 1162 AND adaNo = '103'", ["1162/103/9"]),
        ("mahalleAd LIKE 'Remzi%' AND adaNo NOT LIKE '10_'", []),
        ("alan BETWEEN 9499.5 AND 9500.5 AND adaNo = '102'", ["1162/102/1"]),
        ("alan > 9500", []),
        ("mevkii IS NULL AND durum = '0'", ["1162/103/9"]),
        ("mevkii IS NOT NULL", []),
        ("not mevkii = 'x'", []),
        ("fetchedAt < TIMESTAMP('2001-01-01T00:00:00Z')", []),
        ("fetchedAt > DATE('2001-01-01') and \"adaNo\"='102'", ["1162/102/1"]),
        ("nitelik = 'it''s %s {x} \\ ; DROP TABLE'", []),
    ],
)
async def test_filters(client: httpx2.AsyncClient, text: str, expected: Any) -> None:
    ids = await found(client, urlencode({"filter": text}))
    if isinstance(expected, str):
        assert ids == sorted(f"1162/{expected}/{number}" for number in range(1, 26))
    else:
        assert ids == expected


async def test_properties_as_parameters(client: httpx2.AsyncClient) -> None:
    assert await found(client, "adaNo=102") == ["1162/102/1"]
    assert await found(client, "adaNo=101&parselNo=7&mahalleId=1162") == ["1162/101/7"]
    assert await found(client, "adaNo=%27") == []
    both = urlencode({"filter": "parselNo > '8'", "adaNo": "103"})
    assert await found(client, both) == ["1162/103/9"]
    page = await get(client, f"{ITEMS}?limit=2&adaNo=101", "application/geo+json")
    assert page["numberMatched"] == 25
    assert "adaNo=101" in link(page, "next")["href"]


@pytest.mark.parametrize(
    "text",
    [
        "adaNo",
        "adaNo =",
        "adaNo = 101",
        "alan = 'x'",
        "ada = '1'",
        "adaNo = '1' AND",
        "(adaNo = '1'",
        "adaNo = '1')",
        "adaNo == '1'",
        "adaNo = '1' -- x",
        "adaNo = parselNo",
        "adaNo = 'açık",
        "alan LIKE '1'",
        "fetchedAt > DATE('yesterday')",
        "S_INTERSECTS(geometry, POINT(1 2))",
        "NOT " * 200 + "adaNo = '1'",
        "(" * 300,
        "adaNo IN ()",
    ],
)
async def test_filters_that_cannot_be_read(client: httpx2.AsyncClient, text: str) -> None:
    response = await client.get(ITEMS, params={"filter": text})
    assert response.status_code == 400, response.text
    assert "filter" in response.json()["detail"]


@pytest.mark.parametrize("extension", ["gpkg", "geojson", "fgb", "parquet", "csv", "kml", "dxf"])
async def test_a_selection_as_a_file(
    client: httpx2.AsyncClient, tmp_path: Path, extension: str
) -> None:
    params = {"filter": "adaNo <> '103'", "f": extension}
    if extension in ("gpkg", "fgb", "parquet"):
        params["crs"] = f"{EPSG}5255"
    response = await client.get(ITEMS, params=params)
    assert response.status_code == 200, response.text
    assert f"parcels.{extension}" in response.headers["content-disposition"]
    path = tmp_path / f"p.{extension}"
    path.write_bytes(response.content)
    if extension == "csv":
        assert len(path.read_text().splitlines()) == 27
    elif extension == "parquet":
        assert pyarrow.parquet.read_metadata(path).num_rows == 26
    elif extension != "dxf":
        layer = "parcels" if extension in ("gpkg", "kml") else None
        about = pyogrio.read_info(path, layer=layer)
        assert about["features"] == 26
        assert ("5255" in str(about["crs"])) == ("crs" in params)


async def test_invalid_parameters_are_rejected(client: httpx2.AsyncClient) -> None:
    for query in (
        "limit=0",
        "bbox=1,2,3",
        "datetime=yesterday",
        "after=%00",
        "unknown=1",
        "bbox-crs=x",
        "crs=EPSG:5255",
        "f=exe",
        "f=csv&limit=3",
        f"f=kml&crs={EPSG}5255",
        "filter-lang=cql2-json",
        "mahalleId=x",
        f"bbox=1,2,3&bbox-crs={EPSG}5255",
        f"bbox=1e300,1e300,1e301,1e301&bbox-crs={EPSG}5255",
    ):
        response = await client.get(f"{ITEMS}?{query}")
        assert response.status_code == 400, response.text
        assert response.headers["content-type"] == "application/problem+json"


async def test_missing_items_are_not_found(client: httpx2.AsyncClient) -> None:
    for path in (
        f"{ROOT}/collections/roads",
        f"{ROOT}/collections/roads/items",
        f"{ITEMS}/1/2/3",
        f"{ROOT}/1/2/3",
    ):
        assert (await client.get(path)).status_code == 404
    for path in ("/conformance", "/collections", "/collections/parcels", "/1162/101/1"):
        assert (await client.get(f"{ROOT}{path}?x=1")).status_code == 400


async def test_scans_and_their_parcels_are_listed(
    client: httpx2.AsyncClient, street_settings: Settings
) -> None:
    async with open_store(street_settings, MIGRATIONS) as store, store.connection() as conn:
        cursor = await conn.execute(
            "INSERT INTO tkgm.scan (wish, area, method, abreast) VALUES ('w', %s, %s, 1)"
            " RETURNING id",
            (Jsonb({"type": "Polygon", "coordinates": [square(0)]}), Jsonb({"quality": "fast"})),
        )
        row = await cursor.fetchone()
        assert row is not None
        (scan,) = row
        await conn.execute(
            "INSERT INTO tkgm.told (scan, question, key, feature) VALUES"
            " (%(scan)s, 'a', '1/2/3', %(feature)s), (%(scan)s, 'b', '1/2/3', %(feature)s),"
            " (%(scan)s, 'c', NULL, NULL)",
            {"scan": scan, "feature": Jsonb(parcel(3, square(0)))},
        )
    (shown,) = (await get(client, f"{ROOT}/scans", "application/geo+json"))["features"]
    assert shown["id"] == scan
    assert shown["properties"]["finishedAt"] is None
    assert (shown["properties"]["asked"], shown["properties"]["found"]) == (3, 1)
    outlines = await get(client, f"{ROOT}/scans/{scan}/parcels", "application/geo+json")
    assert [one["id"] for one in outlines["features"]] == ["1/2/3"]
    assert outlines["features"][0]["geometry"]["type"] == "Polygon"


async def test_density(client: httpx2.AsyncClient) -> None:
    whole = await get(client, f"{ROOT}/density?bbox=32.8,39.8,33,40", "application/geo+json")
    assert whole["numberMatched"] == 26
    assert max(cell["properties"]["share"] for cell in whole["features"]) == 1
    assert sum(cell["properties"]["parcels"] for cell in whole["features"]) == 26
    nothing = await get(client, f"{ROOT}/density?bbox=0,0,0,0", "application/geo+json")
    assert nothing["features"] == []
    for query in ("", "?bbox=1", "?bbox=0,0,1,1&limit=2"):
        assert (await client.get(f"{ROOT}/density{query}")).status_code == 400


async def test_the_routes_of_the_feed_are_available(client: httpx2.AsyncClient) -> None:
    changes = await get(client, f"{ROOT}/changes?limit=1000")
    assert len(changes["changes"]) == 27
    assert (await get(client, f"{ROOT}/digest"))["count"] == 27
    assert await get(client, f"{ROOT}/archives") == []


_GDAL = f"""
import json, pyogrio, pyogrio.raw, sys
url = sys.argv[1]
layers = [layer[0] for layer in pyogrio.list_layers(url)]
about, _, shapes, _ = pyogrio.raw.read(url, layer="parcels", PAGE_SIZE="7")
inside = {(WEST + 1.5 * STEP, SOUTH, WEST + 2.5 * STEP, SOUTH + STEP / 2)}
_, _, found, _ = pyogrio.raw.read(url, layer="parcels", bbox=inside)
outlines = sum(shape is not None for shape in shapes)
print(json.dumps([layers, list(about["fields"]), len(shapes), outlines, len(found)]))
"""


async def test_gdal_opens_it_as_qgis_does(street_settings: Settings) -> None:
    socket = bind("127.0.0.1", 0)
    async with open_store(street_settings, MIGRATIONS) as store:
        listener = Listener(
            create_app(street_settings, store, Catalogue.of([], street_settings), [TKGM]), socket
        )
        await listener.start()
        try:
            # In a separate process, because GDAL blocks the process while it waits.
            url = f"OAPIF:http://127.0.0.1:{socket.getsockname()[1]}{ROOT}"
            done = await run_process([sys.executable, "-c", _GDAL, url])
        finally:
            listener.drain()
            await listener.wait_closed()
    layers, fields, shapes, outlines, inside = json.loads(done.stdout)
    assert layers == ["parcels"]
    assert {"mahalleId", "adaNo", "parselNo", "alan", "fetchedAt"} <= set(fields)
    assert (shapes, outlines, inside) == (27, 26, 2)


async def test_an_empty_mirror_and_the_first_parcels(settings: Settings) -> None:
    async with client_for(settings) as (store, client):
        collection = await get(client, f"{ROOT}/collections/parcels")
        assert "extent" not in collection
        assert (await get(client, ITEMS, "application/geo+json"))["numberMatched"] == 0
        await publish_features(store, street())
        await publish_features(store, [parcel(1, square(0, 2), nitelik="Bahçe")])
        one = await get(client, f"{ROOT}/1162/101/1", "application/geo+json")
        assert one["properties"]["nitelik"] == "Bahçe"
        assert "1162/101/1" in await found(client, box(0.2, 2.2, 0.4, 2.4))
        assert "1162/101/1" not in await found(client, box(0.2, 0.2, 0.4, 0.4))
        await _check_selection_by_time(client, store)


async def _check_selection_by_time(client: httpx2.AsyncClient, store: Store) -> None:
    assert len(await found(client, "datetime=2020-01-01T00:00:00Z/..")) == 27
    assert len(await found(client, "datetime=../2020-01-01T00:00:00Z")) == 0
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE tkgm.parcel_told SET told_at = '2020-02-12T23:20:50Z' WHERE key = '1162/101/7'"
        )
    for interval in (
        "2020-02-12T23:20:50Z",
        "2020-02-13T02:20:50%2B03:00",
        "2020-02-12",
        "2020-02-01T00:00:00Z/2020-03-01T00:00:00Z",
        "/2020-03-01T00:00:00Z",
    ):
        assert await found(client, f"datetime={interval}") == ["1162/101/7"], interval


def tile_at(z: int, lon: float, lat: float) -> tuple[int, int]:
    """Return the column and row of the tile at a place, by the formula of the web map."""
    radians = math.radians(lat)
    y = (1 - math.log(math.tan(radians) + 1 / math.cos(radians)) / math.pi) / 2
    return int((lon + 180) / 360 * 2**z), int(y * 2**z)


async def test_gdal_reads_the_tiles(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    z = 17
    outlines = {}
    for feature in (await get(client, f"{ITEMS}?limit=27", "application/geo+json"))["features"]:
        if feature["geometry"]:
            outlines[feature["id"]] = shapely.from_geojson(json.dumps(feature["geometry"]))
    x, y = tile_at(z, WEST + 1.5 * STEP, SOUTH + 0.5 * STEP)
    response = await client.get(f"{ROOT}/tiles/{z}/{x}/{y}.mvt")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/vnd.mapbox-vector-tile"
    path = tmp_path / "tile.mvt"
    path.write_bytes(response.content)
    about, _, geometries, columns = pyogrio.raw.read(path, X=x, Y=y, Z=z, CLIP="NO")
    fields = dict(zip(about["fields"], columns, strict=True))
    to_mercator = Transformer.from_crs("OGC:CRS84", "EPSG:3857", always_xy=True).transform
    unit = 40_075_016.7 / 2**z / 4096
    assert "1162/101/2" in fields["id"]
    for key, wkb in zip(fields["id"], geometries, strict=True):
        found = shapely.from_wkb(wkb)
        assert found.is_valid
        whole = shapely.transform(
            outlines[key], lambda xy: np.column_stack(to_mercator(xy[:, 0], xy[:, 1]))
        )
        # What is in the tile is part of the parcel, to the precision of the tile.
        assert found.difference(whole.buffer(2 * unit)).area == 0
    known = {"If-None-Match": response.headers["etag"]}
    assert (await client.get(f"{ROOT}/tiles/{z}/{x}/{y}.mvt", headers=known)).status_code == 304


async def test_tiles_that_are_empty_or_do_not_exist(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"{ROOT}/tiles/17/0/0.mvt")).status_code == 204
    # The whole world: nothing there is large enough to be seen.
    assert (await client.get(f"{ROOT}/tiles/0/0/0.mvt")).status_code == 204
    for path in ("23/0/0", "1/2/0", "1/0/2"):
        assert (await client.get(f"{ROOT}/tiles/{path}.mvt")).status_code == 400
