"""Scans of an upstream that sends anything: the scan ends, good parcels arrive, none is removed.

HASAT_FUZZ_SEED repeats a run.
"""

import copy
import gzip
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from hasat.errors import BrokenAnswerError
from hasat.fetch import RequestContext, health
from hasat.fetch import endpoint_store as shared
from hasat.http.connections import ConnectionLimits
from hasat.http.listener import Listener, bind
from hasat.settings import Settings, load_settings
from hasat.sources.tkgm.export import export
from hasat.sources.tkgm.features import key_text
from hasat.sources.tkgm.queries import known_parcels
from hasat.sources.tkgm.registry.client import direct, registry
from hasat.sources.tkgm.registry.endpoint_server import endpoint_app
from hasat.sources.tkgm.registry.wire import read_parcel
from hasat.sources.tkgm.scan import runner
from hasat.sources.tkgm.scan.runner import Course, Scan
from hasat.sources.tkgm.scan.scan_request import Wish
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.townscape import generate_cadastre
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.faulty_server import ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
KEY = "key"
NAN, INF = float("nan"), float("inf")
DEEP: Any = json.loads("[" * 300 + "]" * 300)
ATOMS: Sequence[Any] = (
    None, True, 5, -1, 0.5, "", "x", "=1+1", [], {}, [[]], [{}], {"type": 5}, 10**400, -(10**19),
    1e308, NAN, INF, -INF, "\0", "a\0b", "\ud800", "\udc00\ud800", "0000-00-00", "9" * 5000, DEEP,
    "\x01\x1f\ufffe\U0010ffff", "1e400", "NaN", "../../etc", "<script>", {"a\0": 1}, {"\ud800": 2},
)  # fmt: skip
FORMS = ("geojson", "gpkg", "fgb", "shp", "kml", "kmz", "dxf", "parquet", "csv")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("HASAT_FUZZ_SEED") or random.randrange(2**32))
    print(f"HASAT_FUZZ_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FAILING_SECONDS", 0.01)
    monkeypatch.setattr(shared, "_UPSTREAM_REST_SECONDS", 0.005)
    monkeypatch.setattr(runner, "_WAITS", (0.05,) * 12)
    monkeypatch.setattr(runner, "_CONTROL_WAITS", (0.2,) * 10)


def outlines(ring: list[list[float]]) -> list[Any]:
    """Geometries that are no outline of the parcel with this ring, or hardly one."""

    def polygon(*rings: Any) -> dict[str, Any]:
        return {"type": "Polygon", "coordinates": list(rings)}

    first, second, third = ring[:3]
    return [
        5,
        "POLYGON EMPTY",
        [],
        {"type": "Polygon"},
        polygon(),
        polygon([]),
        polygon([first]),
        polygon([first, second]),
        polygon([first] * 5),
        polygon([first, second, first, second, first]),
        polygon([first, third, second, *ring[3:]][:-1]),
        polygon([[lat, lon] for lon, lat in ring]),
        polygon([[lon, lat, 812.5] for lon, lat in ring]),
        polygon([[lon, lat, NAN] for lon, lat in ring]),
        polygon([[10**400, lat] for _, lat in ring]),
        polygon([[lon, NAN] for lon, _ in ring]),
        polygon([[lon, INF] for lon, _ in ring]),
        polygon([[lon + 360, lat] for lon, lat in ring]),
        polygon([[lon + 1, lat] for lon, lat in ring]),
        polygon([[3.2, 3.9], *ring[1:-1], [3.2, 3.9]]),
        polygon([[str(lon), str(lat)] for lon, lat in ring]),
        polygon([[True, False] for _ in ring]),
        polygon([[None, None] for _ in ring]),
        polygon([[lon] for lon, _ in ring]),
        polygon(ring, ring),
        polygon(ring, [[lon + 1, lat] for lon, lat in ring]),
        polygon(DEEP),
        {"type": "Point", "coordinates": first},
        {"type": "LineString", "coordinates": ring},
        {"type": "MultiPoint", "coordinates": ring},
        {"type": "MultiPolygon", "coordinates": [ring]},
        {"type": "MultiPolygon", "coordinates": [[[]], [[first]]]},
        {"type": "GeometryCollection", "geometries": [polygon(ring)]},
        {"type": ["Polygon"], "coordinates": [ring]},
        {"type": "polygon", "coordinates": [ring]},
        polygon([[-180, -90], [180, -90], [180, 90], [-180, 90], [-180, -90]]),
    ]


def damaged(dice: random.Random, feature: dict[str, Any]) -> str:
    """The JSON of a parcel with something wrong; never the JSON of another parcel."""
    key = tuple(feature["properties"][name] for name in ("mahalleId", "adaNo", "parselNo"))
    while True:
        one = copy.deepcopy(feature)
        match dice.randrange(6):
            case 0 | 1:
                coordinates = one["geometry"]["coordinates"]
                polygon = coordinates if one["geometry"]["type"] == "Polygon" else coordinates[0]
                one["geometry"] = dice.choice(outlines(polygon[0]))
            case 2:
                one["properties"][dice.choice(list(one["properties"]))] = dice.choice(ATOMS)
            case 3:
                one["properties"]["gittigiParselListe"] = dice.choice([*ATOMS, "[" * 9000])
            case 4:
                one[dice.choice(list(one))] = dice.choice(ATOMS)
            case 5:
                del one[dice.choice(list(one))]
        text = json.dumps(one)
        if dice.random() < 0.1:
            # The last of two members of one name counts.
            text = text[:-1] + ', "geometry": 5}'
        try:
            told = read_parcel(text.encode())
        except BrokenAnswerError:
            return text
        if told.key == (key[0], str(key[1]), str(key[2])):
            return text


def spoiled(dice: random.Random, body: bytes) -> tuple[bytes, dict[str, str]]:
    """A body that is no longer what it was, and its headers."""
    cut = dice.randrange(len(body))
    noise = bytes([dice.randrange(256)])
    return dice.choice(
        [
            (body[:cut], {}),
            (body[:cut] + noise + body[cut + 1 :], {}),
            (body[:cut] + b"\xff\xfe\xc3" + body[cut:], {}),
            (b"", {}),
            (b"null", {}),
            (b"[]", {}),
            (b'{"results": []}', {}),
            (b'{"results": {}, "type": "Feature"}', {}),
            (b"[" * 100_000, {}),
            (b"9" * 10_000, {}),
            (b"\0" * 100, {"content-type": "image/png"}),
            (b"<html>Bad Gateway</html>", {"content-type": "text/html"}),
            (gzip.compress(body)[: 10 + cut // 2], {"content-encoding": "gzip"}),
            (b"no gzip at all", {"content-encoding": "gzip"}),
            (gzip.compress(b" " * 40_000_000), {"content-encoding": "gzip"}),
            (body.decode().encode("utf-16"), {}),
            (body, {"retry-after": "Mon, 99 Foo 99999999999 00:00:00 GMT"}),
        ]
    )


class Hostile:
    """A cadastre behind a server that damages parcels (always the same) and bodies (any)."""

    def __init__(self, cadastre: Cadastre, dice: random.Random) -> None:
        self.cadastre = cadastre
        self.dice = dice
        self.on = True
        keys = sorted(key_text(one.key) for one in cadastre.parcels)
        self.victims = set(dice.sample(keys, len(keys) // 4))

    def parcel(self, lat: float, lon: float) -> str | None:
        found = self.cadastre.at(lat, lon)
        if found is None:
            return None
        if self.on and key_text(found.key) in self.victims:
            return damaged(self.dice, found.feature())
        return json.dumps(found.feature())

    async def __call__(self, asked: ReceivedRequest, reply: Reply) -> None:
        if asked.method == "POST":
            points = json.loads(asked.body)["coordinates"]
            told = [self.parcel(one["lat"], one["lon"]) for one in points]
            results = [
                '{"status": "empty", "data": null}'
                if one is None
                else f'{{"status": "found", "data": {one}}}'
                for one in told
            ]
            if self.on and self.dice.random() < 0.1:
                odd = ["5", "null", '{"status": "found"}', '{"status": ["error"]}', "[]"]
                results[self.dice.randrange(len(results))] = self.dice.choice(odd)
            status, text = 200, f'{{"results": [{", ".join(results)}]}}'
        else:
            lat, lon = asked.path.strip("/").split("/")[-2:]
            one = self.parcel(float(lat), float(lon))
            status = 404 if one is None else 200
            text = one or '{"Message": "Parsel Bulunamad\\u0131"}'
        body, headers = text.encode(), dict[str, str]()
        if self.on and self.dice.random() < 0.1:
            body, headers = spoiled(self.dice, body)
        await reply.send(status, body, headers)


class World:
    """The mirror of a hostile upstream."""

    def __init__(self, store: Store, settings: Settings, hostile: Hostile, workers: Path) -> None:
        self.store = store
        self.settings = settings
        self.hostile = hostile
        self.workers = workers

    async def scan(self, *, hostile: bool) -> Course:
        self.hostile.on = hostile
        wish = Wish(self.hostile.cadastre.area())
        async with registry(self.store, self.settings, self.workers) as asked:
            course = await Scan(self.store, asked, wish, RequestContext("daily", "tkgm_scan")).run()
        assert course.complete
        return course

    async def mirrored(self) -> dict[str, Any]:
        async with self.store.connection() as conn:
            cursor = await conn.execute("SELECT key, body FROM core.parcels")
            return dict(await cursor.fetchall())

    async def count(self, table: str) -> int:
        async with self.store.connection() as conn:
            row = await (await conn.execute(f"SELECT count(*) FROM {table}")).fetchone()
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def behind_an_endpoint(store: Store, settings: Settings) -> AsyncIterator[str]:
    """`hasat tkgm endpoint` in front of the upstream; what it fails with fails the test."""
    errors: list[Exception] = []
    async with direct(store, settings) as asked:
        app = endpoint_app(asked, settings, KEY)

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                errors.append(error)
                raise

        listening = bind("127.0.0.1", 0)
        port = listening.getsockname()[1]
        listener = Listener(watched, listening, limits=ConnectionLimits.of(settings))
        await listener.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            listener.drain()
            await listener.until_over()
    assert errors == []


@asynccontextmanager
async def world(
    database: ThrowAwayDatabase, home: Path, dice: random.Random, form: str
) -> AsyncIterator[World]:
    hostile = Hostile(generate_cadastre("town", 16, 4), dice)
    async with faulty_server(hostile) as server:
        environ = {
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_TKGM_REGISTRY_URL": server.url,
            "HASAT_TKGM_REGISTRY_PER_MINUTE": "6000",
            "HASAT_TKGM_REGISTRY_DAILY": "100000",
        }
        settings = load_settings(environ=environ)
        async with open_store(settings, [MIGRATIONS]) as store:
            workers = home / "workers.json"

            def declare(*urls: str) -> None:
                entries = [{"url": url, "min_interval_ms": 0, "daily": 100_000} for url in urls]
                workers.write_text(json.dumps({"api_key": KEY, "workers": entries}))

            found = World(store, settings, hostile, workers)
            if form == "worker":
                declare(f"{server.url}/e1", f"{server.url}/e2", f"{server.url}/e3")
                yield found
            else:
                async with behind_an_endpoint(store, settings) as address:
                    declare(address)
                    yield found


@pytest.mark.parametrize("form", ["worker", "direct"])
async def test_a_scan_survives_whatever_is_sent(
    database: ThrowAwayDatabase, tmp_path: Path, dice: random.Random, form: str
) -> None:
    async with world(database, tmp_path, dice, form) as place:
        victims = place.hostile.victims
        first = await place.scan(hostile=True)
        assert (first.quarantined > 0) <= (await place.count("raw.set_aside") > 0)
        await place.scan(hostile=False)
        clean = await place.mirrored()
        everybody = {key_text(one.key) for one in place.hostile.cadastre.parcels}
        assert clean.keys() == everybody
        # What is known is not removed by damage, and others are as they were.
        await place.scan(hostile=True)
        now = await place.mirrored()
        assert now.keys() == everybody
        assert {key: now[key] for key in everybody - victims} == {
            key: clean[key] for key in everybody - victims
        }
        parcels = await known_parcels(place.store)
        for form_name in FORMS:
            assert export(parcels, tmp_path / f"out.{form_name}") == len(everybody)
        await place.scan(hostile=False)
        repaired = await place.mirrored()
        assert {key: without_extra(one) for key, one in repaired.items()} == {
            key: without_extra(one) for key, one in clean.items()
        }


def without_extra(body: dict[str, Any]) -> dict[str, Any]:
    """A parcel without the property that only damage adds, and that nothing takes away again."""
    properties = {**body["properties"]}
    properties.pop("gittigiParselListe", None)
    return {**body, "properties": properties}


@pytest.mark.parametrize("atom", ["\ud800", "\0", 10**400, NAN], ids=["half", "nul", "huge", "nan"])
async def test_a_scan_of_nothing_but_rubbish_stops_and_goes_on_when_it_is_over(
    database: ThrowAwayDatabase, tmp_path: Path, dice: random.Random, atom: Any
) -> None:
    async with world(database, tmp_path, dice, "worker") as place:
        hostile = place.hostile
        rubbish: Callable[[float, float], str | None] = lambda lat, lon: json.dumps({"type": atom})  # noqa: E731
        good, hostile.parcel = hostile.parcel, rubbish  # type: ignore[method-assign]
        with pytest.raises(BrokenAnswerError, match="cannot be read"):
            await place.scan(hostile=False)
        assert await place.mirrored() == {}
        assert await place.count("raw.set_aside") > 0
        hostile.parcel = good  # type: ignore[method-assign]
        await place.scan(hostile=False)
        assert len(await place.mirrored()) == len(hostile.cadastre.parcels)
