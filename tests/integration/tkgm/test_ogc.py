"""The parcels as OGC API Features: the tests of the standard's Annex A that apply, and GDAL."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import httpx2
import pytest
from anyio import run_process
from anyio.from_thread import BlockingPortal
from psycopg.types.json import Jsonb

from hasat.api import create_app
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.tkgm.source import TKGM
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import throw_away_database
from hasat.testing.http import app_client, undocumented_operations
from support.parcel_toys import SOUTH, STEP, WEST, parcel, publish_features, square, street

pytestmark = pytest.mark.anyio

ROOT = "/api/v1/parcels"
ITEMS = f"{ROOT}/collections/parcels/items"
MIGRATIONS = [MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")]


@pytest.fixture(scope="module")
def kept(
    background: BlockingPortal, server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """A database with the street in it, for all tests that only read."""
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
async def town(kept: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_for(kept) as (_, client):
        yield client


async def get(client: httpx2.AsyncClient, url: str, media: str = "application/json") -> Any:
    answer = await client.get(url)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media
    return answer.json()


async def found(client: httpx2.AsyncClient, query: str) -> list[str]:
    page = await get(client, f"{ITEMS}?limit=1000&{query}", "application/geo+json")
    assert page["numberMatched"] == page["numberReturned"] == len(page["features"])
    return [feature["id"] for feature in page["features"]]


def link(document: Any, rel: str) -> Any:
    (one,) = [link for link in document["links"] if link["rel"] == rel]
    return one


async def test_every_door_is_described(kept: Settings) -> None:
    async with open_store(kept, MIGRATIONS) as store:
        app = create_app(kept, store, Catalogue.of([], kept), [TKGM])
        assert undocumented_operations(app) == []


async def test_everything_is_found_from_the_landing_page(town: httpx2.AsyncClient) -> None:
    landing = await get(town, ROOT)
    for rel in ("self", "service-desc", "service-doc", "conformance", "data"):
        one = link(landing, rel)
        answer = await town.get(one["href"])
        assert answer.status_code == 200, one
    conformance = await get(town, link(landing, "conformance")["href"])
    core = "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core"
    assert core in conformance["conformsTo"]
    collections = await get(town, link(landing, "data")["href"])
    assert link(collections, "self")["href"].endswith(f"{ROOT}/collections")
    (listed,) = collections["collections"]
    collection = await get(town, link(listed, "self")["href"])
    assert collection == listed
    ((west, south, east, north),) = collection["extent"]["spatial"]["bbox"]
    assert (west, south) == (WEST, SOUTH)
    assert east > west
    assert north > south
    ((began, ended),) = collection["extent"]["temporal"]["interval"]
    assert began <= ended
    assert collection["crs"] == ["http://www.opengis.net/def/crs/OGC/1.3/CRS84"]
    page = await get(town, link(collection, "items")["href"], "application/geo+json")
    assert page["type"] == "FeatureCollection"
    assert page["timeStamp"].endswith("Z")


async def test_pages_lead_through_all_parcels_once(town: httpx2.AsyncClient) -> None:
    url, seen, pages = f"{ITEMS}?limit=4", [], 0
    while url:
        page = await get(town, url, "application/geo+json")
        assert page["numberReturned"] == len(page["features"]) <= 4
        assert page["numberMatched"] == 27
        seen += [feature["id"] for feature in page["features"]]
        pages += 1
        url = next((one["href"] for one in page["links"] if one["rel"] == "next"), "")
    assert len(seen) == len(set(seen)) == 27
    assert pages == 7


async def test_ten_come_unless_asked_and_a_limit_too_high_is_lowered(
    town: httpx2.AsyncClient,
) -> None:
    assert (await get(town, ITEMS, "application/geo+json"))["numberReturned"] == 10
    page = await get(town, f"{ITEMS}?limit=99999999999999", "application/geo+json")
    assert page["numberReturned"] == 27


async def test_one_parcel_by_its_key_in_every_spelling(town: httpx2.AsyncClient) -> None:
    page = await get(town, f"{ITEMS}?limit=1", "application/geo+json")
    (listed,) = page["features"]
    assert listed["id"] == "1162/101/1"
    assert listed["properties"]["alan"] == 9500
    for path in (
        f"{ITEMS}/1162%2F101%2F1",
        f"{ITEMS}/1162/101/1",
        f"{ROOT}/1162/101/1",
        f"{ROOT}/1162%2F101%2F1",
    ):
        one = await get(town, path, "application/geo+json")
        assert link(one, "self")["href"].endswith(f"{ITEMS}/1162%2F101%2F1")
        assert link(one, "collection")["href"].endswith("/collections/parcels")
        del one["links"]
        assert one == listed
    history = await get(town, f"{ROOT}/1162%2F101%2F1/history")
    assert [change["changeType"] for change in history["history"]] == ["added"]
    answer = await town.get(f"{ITEMS}/1162/101/1")
    known = {"If-None-Match": answer.headers["etag"]}
    assert (await town.get(f"{ITEMS}/1162/101/1", headers=known)).status_code == 304


def box(west: float, south: float, east: float, north: float) -> str:
    sides = (WEST + west * STEP, SOUTH + south * STEP, WEST + east * STEP, SOUTH + north * STEP)
    return "bbox=" + ",".join(f"{side:.6f}" for side in sides)


async def test_a_box_finds_what_reaches_into_it(town: httpx2.AsyncClient) -> None:
    assert await found(town, box(1.5, 0.2, 2.5, 0.8)) == ["1162/101/2", "1162/101/3"]
    assert len(await found(town, "bbox=-180,-90,180,90")) == 26
    assert len(await found(town, "bbox=-180,-90,-1000,180,90,9000")) == 26
    assert await found(town, "bbox=0,0,1,1") == []
    around = f"bbox=170,-90,{WEST + 0.5 * STEP},90"
    assert "1162/101/1" in await found(town, around)
    assert "1162/101/2" not in await found(town, around)


async def test_outlines_decide_not_their_boxes(town: httpx2.AsyncClient) -> None:
    # Inside of the bent parcel's bounding box, and on nobody's ground.
    assert await found(town, box(2, 7, 3, 8)) == []
    assert await found(town, box(0.5, 7, 3, 8)) == ["1162/102/1"]


async def test_the_parcel_at_a_point(town: httpx2.AsyncClient) -> None:
    at = f"lat={SOUTH + 0.5 * STEP}&lon={WEST + 3.5 * STEP}"
    assert await found(town, at) == ["1162/101/4"]
    page = await get(town, f"{ROOT}?{at}", "application/geo+json")
    assert [feature["id"] for feature in page["features"]] == ["1162/101/4"]
    page = await get(town, f"{ROOT}?{box(1.5, 0.2, 2.5, 0.8)}", "application/geo+json")
    assert page["numberMatched"] == 2


async def test_what_cannot_be_understood_is_refused(town: httpx2.AsyncClient) -> None:
    for query in (
        "limit=0",
        "bbox=1,2,3",
        "datetime=yesterday",
        "after=%00",
        "unknown=1",
        "bbox-crs=x",
    ):
        answer = await town.get(f"{ITEMS}?{query}")
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_what_is_not_there_is_not_found(town: httpx2.AsyncClient) -> None:
    for path in (
        f"{ROOT}/collections/roads",
        f"{ROOT}/collections/roads/items",
        f"{ITEMS}/1/2/3",
        f"{ROOT}/1/2/3",
    ):
        assert (await town.get(path)).status_code == 404
    for path in ("/conformance", "/collections", "/collections/parcels", "/1162/101/1"):
        assert (await town.get(f"{ROOT}{path}?x=1")).status_code == 400


async def test_a_scan_can_be_watched(town: httpx2.AsyncClient, kept: Settings) -> None:
    async with open_store(kept, MIGRATIONS) as store, store.connection() as conn:
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
    (shown,) = (await get(town, f"{ROOT}/scans", "application/geo+json"))["features"]
    assert shown["id"] == scan
    assert shown["properties"]["finishedAt"] is None
    assert (shown["properties"]["asked"], shown["properties"]["found"]) == (3, 1)
    told = await get(town, f"{ROOT}/scans/{scan}/parcels", "application/geo+json")
    assert [one["id"] for one in told["features"]] == ["1/2/3"]
    assert told["features"][0]["geometry"]["type"] == "Polygon"


async def test_how_dense_they_lie(town: httpx2.AsyncClient) -> None:
    whole = await get(town, f"{ROOT}/density?bbox=32.8,39.8,33,40", "application/geo+json")
    assert whole["numberMatched"] == 26
    assert max(cell["properties"]["share"] for cell in whole["features"]) == 1
    assert sum(cell["properties"]["parcels"] for cell in whole["features"]) == 26
    nothing = await get(town, f"{ROOT}/density?bbox=0,0,0,0", "application/geo+json")
    assert nothing["features"] == []
    for query in ("", "?bbox=1", "?bbox=0,0,1,1&limit=2"):
        assert (await town.get(f"{ROOT}/density{query}")).status_code == 400


async def test_the_feeds_own_doors_stay(town: httpx2.AsyncClient) -> None:
    changes = await get(town, f"{ROOT}/changes?limit=1000")
    assert len(changes["changes"]) == 27
    assert (await get(town, f"{ROOT}/digest"))["count"] == 27
    assert await get(town, f"{ROOT}/archives") == []


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


async def test_gdal_opens_it_as_qgis_does(kept: Settings) -> None:
    socket = bind("127.0.0.1", 0)
    async with open_store(kept, MIGRATIONS) as store:
        listener = Listener(create_app(kept, store, Catalogue.of([], kept), [TKGM]), socket)
        await listener.start()
        try:
            # In a process of its own: GDAL lets nothing else of a process run while it asks.
            url = f"OAPIF:http://127.0.0.1:{socket.getsockname()[1]}{ROOT}"
            done = await run_process([sys.executable, "-c", _GDAL, url])
        finally:
            listener.drain()
            await listener.until_over()
    layers, fields, shapes, outlines, inside = json.loads(done.stdout)
    assert layers == ["parcels"]
    assert {"mahalleId", "adaNo", "parselNo", "alan", "fetchedAt"} <= set(fields)
    assert (shapes, outlines, inside) == (27, 26, 2)


async def test_from_the_first_scan_on(settings: Settings) -> None:
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
        await _times_select_by_when_a_parcel_was_told(client, store)


async def _times_select_by_when_a_parcel_was_told(client: httpx2.AsyncClient, store: Store) -> None:
    assert len(await found(client, "datetime=2020-01-01T00:00:00Z/..")) == 27
    assert len(await found(client, "datetime=../2020-01-01T00:00:00Z")) == 0
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE tkgm.parcel_told SET told_at = '2020-02-12T23:20:50Z' WHERE key = '1162/101/7'"
        )
    for asked in (
        "2020-02-12T23:20:50Z",
        "2020-02-13T02:20:50%2B03:00",
        "2020-02-12",
        "2020-02-01T00:00:00Z/2020-03-01T00:00:00Z",
        "/2020-03-01T00:00:00Z",
    ):
        assert await found(client, f"datetime={asked}") == ["1162/101/7"], asked
