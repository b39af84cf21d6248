"""The parcels page over HTTP: its content, the estimate of a scan, and starting one."""

import json
from importlib.resources import files

import pytest
from psycopg.types.json import Jsonb
from shapely.geometry import mapping

from hasat.api.app import create_app
from hasat.jobs import Catalogue, Job, Outcome, RunContext
from hasat.jobs.runs import list_runs
from hasat.settings import Settings
from hasat.sources.tkgm.geometry import parse_drawn_area
from hasat.sources.tkgm.source import TKGM
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from hasat.web import add_pages
from hasat.web.rendering import StaticFiles
from support.parcels import NEIGHBOURHOOD, STEP, parcel, publish_features, square, street

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = [MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")]
AREA = "32.85,39.9 32.852,39.9 32.852,39.901"
OWN_PAGE = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}


async def _scan(context: RunContext) -> Outcome:
    return Outcome()


JOB = Job("tkgm_scan", _scan, "Scans an area.", source="tkgm")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def settings(settings: Settings) -> Settings:
    tiles = {"base_map": "https://tiles.example.org/{z}/{x}/{y}.png", "base_map_credit": "© X"}
    return settings.model_copy(update={"serve": settings.serve.model_copy(update=tiles)})


async def _scanned(store: Store, area: str, *, finished: bool) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO tkgm.scan (wish, area, method, abreast, finished_at, result)"
            " VALUES (%s, %s, '{}', 1, CASE WHEN %s THEN now() END, %s)",
            [
                area.encode(),
                Jsonb(mapping(parse_drawn_area(area))),
                finished,
                Jsonb({"asked": 7, "found": 5}) if finished else None,
            ],
        )


async def test_the_page_from_empty_to_a_scan(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = Catalogue.of([JOB], settings)
    app = create_app(settings, store, catalogue, [TKGM])
    add_pages(app, settings, store, catalogue, [TKGM])
    async with app_client(app, headers={"Accept": "text/html"}) as client:
        empty = await client.get("/parcels")
        assert empty.status_code == 200
        assert "No scans yet." in empty.text
        rough = (await client.get(f"/parcels.json?area={AREA}")).json()["planned"]["cost"]
        assert rough["rough"]

        await publish_features(store, street())
        page = await client.get(f"/parcels?area={AREA}")
        assert "1162%2F101%2F2" in page.text
        assert "Start scan" in page.text
        assert "© X" in page.text
        policy = page.headers["content-security-policy"]
        assert "connect-src 'self' https://tiles.example.org" in policy
        assert "script-src" not in policy
        data = (await client.get(f"/parcels.json?area={AREA}")).json()
        assert data["extent"]["count"] == 27
        cost = data["planned"]["cost"]
        assert not cost["rough"]
        assert cost["km2"] == pytest.approx(0.0095, rel=0.01)
        assert 1 <= cost["known"] <= cost["parcels"] <= 3
        assert cost["least"] <= cost["most"]

        for wrong in ("Ankara", "0,0,80,80", "1,1 2,2"):
            assert (await client.get("/parcels", params={"area": wrong})).status_code == 400
        elsewhere = await client.post(
            "/parcels/scan", data={"area": AREA}, headers={"Origin": "http://elsewhere.example"}
        )
        assert elsewhere.status_code == 403
        assert not await list_runs(store)
        begun = await client.post("/parcels/scan", data={"area": AREA}, headers=OWN_PAGE)
        assert begun.status_code == 303
        (run,) = await list_runs(store)
        assert run.params["area"]["type"] == "Polygon"
        assert "yes" not in run.params
        watched = await client.get(begun.headers["location"])
        assert f'href="/runs/{run.id}"' in watched.text

        await _scanned(store, "32.9,39.9,32.901,39.901", finished=True)
        await _scanned(store, "32.85,39.9,32.86,39.91", finished=True)
        await _scanned(store, "32.859,39.909,32.861,39.911", finished=False)
        data = (await client.get("/parcels.json")).json()
        # The latest scan and its neighbours; the other area is not in view.
        assert list(data["bounds"].values()) == [32.85, 39.9, 32.861, 39.911]
        assert list(data["everything"].values()) == [32.85, 39.9, 32.901, 39.911]
        assert [one["requests"] for one in data["scans"]] == [0, 7, 7]
        async with store.connection() as conn:
            await conn.execute("UPDATE jobs.run SET state = 'running', started_at = now()")
        data = (await client.get("/parcels.json")).json()
        assert [one["requests"] for one in data["scans"]] == [None, 7, 7]

    monkeypatch.setattr(StaticFiles, "has", lambda *_: False)
    app = create_app(settings, store, catalogue, [TKGM])
    add_pages(app, settings, store, catalogue, [TKGM])
    async with app_client(app, headers={"Accept": "text/html"}) as client:
        plain = await client.get("/parcels")
        assert plain.status_code == 200
        assert "built without the map" in plain.text
        assert "1162%2F101%2F2" in plain.text


async def test_search_upload_and_deletion_of_a_scan(settings: Settings, store: Store) -> None:
    catalogue = Catalogue.of([JOB], settings)
    app = create_app(settings, store, catalogue, [TKGM])
    add_pages(app, settings, store, catalogue, [TKGM])
    places = {"ilAd": "Ankara", "ilceAd": "Çankaya"}
    known = [parcel(7, square(3)), *street(2)]
    for one in known:
        one["properties"] |= places
    await publish_features(store, known)
    async with app_client(app, headers={"Accept": "text/html"}) as client:
        for text, title, key in (
            ("101/7", "101/7", "1162/101/7"),
            ("cankaya 101/7", "101/7", "1162/101/7"),
            ("ada 101 parsel 2", "101/2", "1162/101/2"),
            ("1162/103/9", "103/9", "1162/103/9"),
            ("oguz arik", "Remzi Oğuz Arık", None),
        ):
            found = (await client.get("/parcels.json", params={"q": text})).json()
            (result,) = found["results"]
            assert (result["title"], result["key"]) == (title, key), text
            assert found["chosen"] == (key or "")
        for text in ("istanbul 101/7", "101/99", "yok", "/", "%"):
            found = (await client.get("/parcels.json", params={"q": text})).json()
            assert found["results"] == [], text

        drawn = {"file": ("ada.geojson", json.dumps(mapping(parse_drawn_area(AREA))))}
        stored = await client.post("/parcels/area", files=drawn, headers=OWN_PAGE)
        assert stored.status_code == 303
        page = await client.get(stored.headers["location"])
        assert 'value="ada.geojson"' in page.text
        begun = await client.post(
            "/parcels/scan",
            data={
                "file": stored.headers["location"].partition("=")[2],
                "estimate": "1",
                "yes": "1",
            },
            headers=OWN_PAGE,
        )
        assert begun.status_code == 303
        (run,) = await list_runs(store)
        assert run.params["estimate"] is True
        assert run.params["yes"] is True
        wrong = {"file": ("ada.geojson", "{}")}
        refused = await client.post(
            "/parcels/area", files=wrong, headers={**OWN_PAGE, "Accept": "application/json"}
        )
        assert refused.status_code == 400
        assert "no geometry" in refused.json()["detail"]

        page = await client.get("/parcels", params={"area": "32.85,39.9,1"})
        assert page.status_code == 400
        assert 'value="32.85,39.9,1"' in page.text
        assert 'id="area-problem"' in page.text
        assert 'data-island="map"' in page.text
        # Without the address of the registry, places cannot be looked up.
        page = await client.get("/parcels", params={"area": "Ankara/Çankaya"})
        assert page.status_code == 400
        begun = await client.post("/parcels/scan", data={"area": "0,0,1,1"}, headers=OWN_PAGE)
        assert begun.headers["location"] == "/parcels?area=0%2C0%2C1%2C1"
        assert len(await list_runs(store)) == 1

        await _scanned(store, "32.9,39.9,32.901,39.901", finished=True)
        await _scanned(store, "32.85,39.9,32.86,39.91", finished=False)
        running, done = (one["id"] for one in (await client.get("/parcels.json")).json()["scans"])
        for scan, status in ((done, 303), (done, 404), (running, 409), ("x", 400)):
            sent = await client.post("/parcels/scan/delete", data={"scan": scan}, headers=OWN_PAGE)
            assert sent.status_code == status, scan
        left = (await client.get("/parcels.json")).json()
        assert [one["id"] for one in left["scans"]] == [running]
        assert left["extent"]["count"] == 5


async def test_the_page_of_a_parcel_shows_its_outline_before_and_after(
    store: Store, settings: Settings
) -> None:
    await publish_features(store, street(3))
    await publish_features(store, [parcel(1, square(0, size=STEP / 2))])
    catalogue = Catalogue.of([JOB], settings)
    app = create_app(settings, store, catalogue, [TKGM])
    add_pages(app, settings, store, catalogue, [TKGM])
    address = f"/parcels/record?key={NEIGHBOURHOOD}/101/1"
    async with app_client(app) as client:
        data = (await client.get(address.replace("record?", "record.json?"))).json()
        assert [one["change"]["kind"] for one in data["history"]] == ["modified", "added"]
        modified, added = (one["drawing"] for one in data["history"])
        assert None not in (modified["before"], modified["after"])
        assert (added["before"], added["after"] is None) == (None, False)
        page = await client.get(address, headers={"Accept": "text/html"})
        assert page.status_code == 200
        for text in ("Remzi Oğuz Arık 101/1", "Before", "After", "Land use"):
            assert text in page.text
        every = await client.get("/parcels", headers={"Accept": "text/html"})
        assert f'<a href="/parcels/record?key={NEIGHBOURHOOD}%2F101%2F1">101/1</a>' in every.text
        missing = await client.get("/parcels/record?key=1/2/3", headers={"Accept": "text/html"})
        assert missing.status_code == 404
        assert "No parcel with this key is stored" in missing.text
