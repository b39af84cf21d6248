"""Scans of an upstream that sends malformed responses end, find good parcels and remove none.

HASAT_FUZZ_SEED repeats a run.
"""

import copy
import gzip
import json
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from hasat.errors import BrokenAnswerError, UnavailableError
from hasat.fetch import RequestContext, endpoint_store, health, reset_rests
from hasat.http.connections import ConnectionLimits
from hasat.http.listener import Listener, bind
from hasat.settings import Settings, load_settings
from hasat.sources.tkgm.export import export
from hasat.sources.tkgm.features import format_key
from hasat.sources.tkgm.queries import load_parcels
from hasat.sources.tkgm.registry.client import open_direct, open_registry
from hasat.sources.tkgm.registry.endpoint_server import endpoint_app
from hasat.sources.tkgm.registry.wire import parse_object, parse_parcel
from hasat.sources.tkgm.scan import runner
from hasat.sources.tkgm.scan.progress import ScanProgress, ScanRequest
from hasat.sources.tkgm.scan.runner import Scan
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.kinds import generate_cadastre
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
FORMATS = ("geojson", "gpkg", "fgb", "shp", "kml", "kmz", "dxf", "parquet", "csv")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("HASAT_FUZZ_SEED") or random.randrange(2**32))
    print(f"HASAT_FUZZ_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FAILING_SECONDS", 0.01)
    monkeypatch.setattr(endpoint_store, "_UPSTREAM_REST_SECONDS", 0.005)
    monkeypatch.setattr(runner, "_WAITS", (0.05,) * 12)
    monkeypatch.setattr(runner, "_CONTROL_WAITS", (0.2,) * 10)


def outlines(ring: list[list[float]]) -> list[Any]:
    """Return geometries that are not the outline of the parcel with this ring, or hardly."""

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


def damaged_feature(dice: random.Random, feature: dict[str, Any]) -> str:
    """Return the JSON of a parcel with a defect, but never that of another parcel."""
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
            parcel = parse_parcel(parse_object(text.encode()))
        except BrokenAnswerError:
            return text
        if parcel.key == (key[0], str(key[1]), str(key[2])):
            return text


def damaged_body(dice: random.Random, body: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a damaged body and its headers."""
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


class DamagingUpstream:
    """A cadastre behind a server that damages some parcels always, and any body at random."""

    def __init__(self, cadastre: Cadastre, dice: random.Random) -> None:
        self.cadastre = cadastre
        self.dice = dice
        self.on = True
        keys = sorted(format_key(one.key) for one in cadastre.parcels)
        self.victims = set(dice.sample(keys, len(keys) // 4))

    def parcel(self, lat: float, lon: float) -> str | None:
        found = self.cadastre.at(lat, lon)
        if found is None:
            return None
        if self.on and format_key(found.key) in self.victims:
            return damaged_feature(self.dice, found.feature())
        return json.dumps(found.feature())

    async def __call__(self, request: ReceivedRequest, reply: Reply) -> None:
        if request.method == "POST":
            points = json.loads(request.body)["coordinates"]
            parcels = [self.parcel(one["lat"], one["lon"]) for one in points]
            results = [
                '{"status": "empty", "data": null}'
                if one is None
                else f'{{"status": "found", "data": {one}}}'
                for one in parcels
            ]
            if self.on and self.dice.random() < 0.1:
                odd = ["5", "null", '{"status": "found"}', '{"status": ["error"]}', "[]"]
                results[self.dice.randrange(len(results))] = self.dice.choice(odd)
            status, text = 200, f'{{"results": [{", ".join(results)}]}}'
        else:
            lat, lon = request.path.strip("/").split("/")[-2:]
            one = self.parcel(float(lat), float(lon))
            status = 404 if one is None else 200
            text = one or '{"Message": "Parsel Bulunamad\\u0131"}'
        body, headers = text.encode(), dict[str, str]()
        if self.on and self.dice.random() < 0.1:
            body, headers = damaged_body(self.dice, body)
        await reply.send(status, body, headers)


class World:
    """The mirror of a damaging upstream."""

    def __init__(
        self, store: Store, settings: Settings, upstream: DamagingUpstream, workers: Path
    ) -> None:
        self.store = store
        self.settings = settings
        self.upstream = upstream
        self.workers = workers

    async def scan(self, *, damaged: bool) -> ScanProgress:
        self.upstream.on = damaged
        request = ScanRequest(self.upstream.cadastre.area())
        async with open_registry(self.store, self.settings, self.workers) as registry:
            progress = await Scan(
                self.store, registry, request, RequestContext("daily", "tkgm_scan")
            ).run()
        assert progress.complete
        return progress

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
    """Serve `hasat tkgm endpoint` in front of the upstream; its exceptions fail the test."""
    errors: list[Exception] = []
    async with open_direct(store, settings) as direct:
        app = endpoint_app(direct, settings, KEY)

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
            await listener.wait_closed()
    assert errors == []


@asynccontextmanager
async def world(
    database: ThrowAwayDatabase, home: Path, dice: random.Random, form: str
) -> AsyncIterator[World]:
    upstream = DamagingUpstream(generate_cadastre("town", 16, 4), dice)
    async with faulty_server(upstream) as server:
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

            found = World(store, settings, upstream, workers)
            if form == "worker":
                declare(f"{server.url}/e1", f"{server.url}/e2", f"{server.url}/e3")
                yield found
            else:
                async with behind_an_endpoint(store, settings) as address:
                    declare(address)
                    yield found


@pytest.mark.parametrize("form", ["worker", "direct"])
async def test_a_scan_survives_malformed_responses(
    database: ThrowAwayDatabase, tmp_path: Path, dice: random.Random, form: str
) -> None:
    async with world(database, tmp_path, dice, form) as place:
        victims = place.upstream.victims
        first = await place.scan(damaged=True)
        assert (first.quarantined > 0) <= (await place.count("raw.set_aside") > 0)
        await place.scan(damaged=False)
        clean = await place.mirrored()
        all_keys = {format_key(one.key) for one in place.upstream.cadastre.parcels}
        assert clean.keys() == all_keys
        # Damage removes no known parcel, and the others are unchanged.
        await place.scan(damaged=True)
        now = await place.mirrored()
        assert now.keys() == all_keys
        assert {key: now[key] for key in all_keys - victims} == {
            key: clean[key] for key in all_keys - victims
        }
        parcels = await load_parcels(place.store)
        for extension in FORMATS:
            assert export(parcels, tmp_path / f"out.{extension}") == len(all_keys)
        await place.scan(damaged=False)
        repaired = await place.mirrored()
        assert {key: without_extra(one) for key, one in repaired.items()} == {
            key: without_extra(one) for key, one in clean.items()
        }


def without_extra(body: dict[str, Any]) -> dict[str, Any]:
    """Return a parcel without the property that damage adds and nothing removes."""
    properties = {**body["properties"]}
    properties.pop("gittigiParselListe", None)
    return {**body, "properties": properties}


@pytest.mark.parametrize("atom", ["\ud800", "\0", 10**400, NAN], ids=["half", "nul", "huge", "nan"])
async def test_a_scan_without_readable_responses_stops_and_can_be_resumed(
    database: ThrowAwayDatabase, tmp_path: Path, dice: random.Random, atom: Any
) -> None:
    async with world(database, tmp_path, dice, "worker") as place:
        upstream = place.upstream

        def malformed(lat: float, lon: float) -> str | None:
            return json.dumps({"type": atom})

        good, upstream.parcel = upstream.parcel, malformed  # type: ignore[method-assign]
        # The scan stops at its own limit, or when all endpoints have failed alike before.
        with pytest.raises((BrokenAnswerError, UnavailableError), match=r"cannot be read|same way"):
            await place.scan(damaged=False)
        assert await place.mirrored() == {}
        assert await place.count("raw.set_aside") > 0
        await reset_rests(place.store, "tkgm")
        upstream.parcel = good  # type: ignore[method-assign]
        await place.scan(damaged=False)
        assert len(await place.mirrored()) == len(upstream.cadastre.parcels)
