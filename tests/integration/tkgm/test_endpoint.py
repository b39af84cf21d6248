"""`hasat tkgm endpoint`: the form and status of its responses, and its daily budget."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hasat.errors import SettingsError
from hasat.fetch import Outcome, Response
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sources.tkgm.commands.endpoints import serve_endpoint
from hasat.sources.tkgm.places import Places
from hasat.sources.tkgm.registry.client import open_direct
from hasat.sources.tkgm.registry.endpoint_server import endpoint_app
from hasat.sources.tkgm.registry.wire import classify
from hasat.sources.tkgm.simulator.server import API, TKGM
from hasat.store import MigrationSet, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.faulty_server import ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
KEY = "çok gizli"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Served:
    """An endpoint and the simulated registry behind it."""

    def __init__(self, sim: Simulation, http: httpx2.AsyncClient) -> None:
        self.sim = sim
        self.http = http

    def points(self, count: int) -> list[dict[str, float]]:
        parcels = self.sim.inside.cadastre.parcels[:count]
        grounds = [one.ground.representative_point() for one in parcels]
        return [{"lat": round(place.y, 7), "lon": round(place.x, 7)} for place in grounds]

    async def batch(self, points: Any) -> httpx2.Response:
        return await self.http.post("/batch", json={"coordinates": points})

    async def received(self) -> int:
        return sum(count for path, count in self.sim.requests.items() if API in path)


@asynccontextmanager
async def served(
    database: ThrowAwayDatabase, home: Path, *, limit: int = 1000, **settings: str
) -> AsyncIterator[Served]:
    simulation = Simulation(TKGM, seed=4, options={"parcels": 40, "registry_daily": limit})
    async with simulate(simulation) as address:
        environ = {
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_TKGM_REGISTRY_URL": f"{address}{API}",
            "HASAT_TKGM_REGISTRY_PER_MINUTE": "6000",
            **settings,
        }
        given = load_settings(environ=environ)
        async with open_store(given, [MIGRATIONS]) as store, open_direct(store, given) as registry:
            transport = httpx2.ASGITransport(endpoint_app(registry, given, KEY))
            async with httpx2.AsyncClient(
                transport=transport,
                base_url="http://endpoint",
                headers={"X-API-Key": KEY.encode()},  # type: ignore[dict-item]
            ) as http:
                yield Served(simulation, http)


def outcome_of(response: httpx2.Response) -> Outcome:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return classify(Response(response.status_code, headers, response.content, 0.0)).outcome


async def test_responses_have_the_form_that_clients_expect(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with served(database, tmp_path) as place:
        [point] = place.points(1)
        parcel = place.sim.inside.cadastre.parcels[0]
        found = await place.http.get(f"/parsel/{point['lat']}/{point['lon']}")
        assert (found.status_code, found.json()) == (200, parcel.feature())
        numbered = await place.http.get("/parsel/{}/{}/{}".format(*parcel.key))
        assert numbered.json()["properties"]["parselNo"] == parcel.parsel
        none = await place.http.get("/parsel/37.5/43.5")
        assert none.status_code == 404
        assert none.json()["Message"].startswith("Parsel Bulunamadı: Enlem = 37,5")
        assert outcome_of(none) is Outcome.EMPTY
        batch = (await place.batch([point, {"lat": 37.5, "lon": 43.5}])).json()
        assert batch["results"] == [
            {"status": "found", "data": parcel.feature()},
            {"status": "empty", "data": None},
        ]
        assert batch["stats"] == {"found": 1, "empty": 1, "error": 0, "total": 2}


async def test_wrong_keys_and_invalid_requests_are_rejected(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with served(database, tmp_path) as place:
        for key in (b"", b"wrong", KEY.encode()[:-1]):
            response = await place.http.get("/parsel/37.5/43.5", headers={"X-API-Key": key})  # type: ignore[dict-item]
            assert response.status_code == 401
            assert outcome_of(response) is Outcome.UNAUTHORISED
        [point] = place.points(1)
        wrong: list[Any] = [[], [point] * 21, [{"lat": 1}], "x", [[1, 2]], [{"lat": 95, "lon": 1}]]
        for points in wrong:
            response = await place.batch(points)
            assert response.status_code == 400, points
            assert response.json()["error"]
        for path in ("/parsel/nan/2", "/parsel/1e5/2", "/parsel/91/2"):
            assert (await place.http.get(path)).status_code == 400
        for body in (b"", b"[" * 15_000, b"{}" * 15_000):
            assert (await place.http.post("/batch", content=body)).status_code == 400
        assert outcome_of(await place.http.get("/elsewhere")) is Outcome.BROKEN
        assert await place.received() == 0


async def test_the_daily_budget_is_never_exceeded(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with served(database, tmp_path, HASAT_TKGM_REGISTRY_DAILY="5") as place:
        points = place.points(8)
        partly = (await place.batch(points)).json()
        assert partly["stats"] == {"found": 5, "empty": 0, "error": 3, "total": 8}
        assert partly["results"][7] == {"status": "error", "coord": points[7]}
        for response in (await place.batch(points), await place.http.get("/parsel/37.5/43.5")):
            assert response.status_code == 403
            assert outcome_of(response) is Outcome.DAY_EXHAUSTED
            assert 0 < int(response.headers["retry-after"]) <= 86_400
        assert await place.received() == 5


async def test_nothing_is_sent_after_the_registry_reports_its_limit(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with served(database, tmp_path, limit=3) as place:
        partly = (await place.batch(place.points(6))).json()
        assert partly["stats"] == {"found": 3, "empty": 0, "error": 3, "total": 6}
        for _ in range(2):
            response = await place.http.get("/parsel/37.5/43.5")
            assert response.status_code == 403
            assert outcome_of(response) is Outcome.DAY_EXHAUSTED
        # The fourth query was refused.
        assert await place.received() == 4


async def test_refusals_of_the_registry_are_passed_on(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with served(database, tmp_path, HASAT_TKGM_SINGLE_TIMEOUT="1s") as place:
        place.sim.faults.switch_on("error", status=503)
        response = await place.http.get("/parsel/37.5/43.5")
        assert response.status_code == 503
        place.sim.faults.switch_off()
        place.sim.faults.switch_on("error", status=403, times=1)
        for _ in range(2):
            response = await place.http.get("/parsel/37.5/43.5")
            assert response.status_code == 429
            assert outcome_of(response) is Outcome.MINUTE_LIMITED
            assert 0 < int(response.headers["retry-after"]) <= 60
        before = await place.received()
        assert (await place.batch(place.points(2))).status_code == 429
        assert await place.received() == before


async def test_the_endpoint_requires_a_key_and_a_registry(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="HASAT_TKGM_ENDPOINT_API_KEY"):
        await serve_endpoint(settings)
    async with open_store(settings, [MIGRATIONS]) as store:
        with pytest.raises(SettingsError, match=r"tkgm\.registry\.url"):
            async with open_direct(store, settings):
                pass


async def test_lists_are_fetched_once(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    simulation = Simulation(TKGM, seed=4, options={"parcels": 10})
    async with simulate(simulation) as address:
        given = load_settings(
            environ={
                "HASAT_HOME": str(tmp_path),
                "HASAT_DATABASE_URL": database.url,
                "HASAT_TKGM_REGISTRY_URL": f"{address}{API}",
            }
        )
        async with open_store(given, [MIGRATIONS]) as store:
            found = await Places(store, given).find("istanbul/KADIKOY/Tuğlacıbaşı Mah.")
            assert found.path == ("İstanbul", "Kadıköy", "Tuğlacı Başı")
            assert found.boundary.equals(simulation.inside.cadastre.area())
            assert sum(simulation.requests.values()) == 3
            [same] = await Places(store, given).within("56/521/147766")
            assert same == found
            assert [one.place.id for one in await Places(store, given).within("İstanbul")] == [521]
            assert sum(simulation.requests.values()) == 3
            await Places(store, given, fresh=True).within(None)
            assert sum(simulation.requests.values()) == 4


async def test_a_pause_of_the_registry_is_passed_on(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    """The caller has other endpoints: it learns of the pause instead of waiting for it."""
    busy = {"retry-after": "90"}

    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.json(429, {"Message": "busy"}, busy)

    async with faulty_server(handler) as registry:
        url = {"HASAT_TKGM_REGISTRY_URL": registry.url}
        async with served(database, tmp_path, **url) as place:
            response = await place.http.get("/parsel/37.5/43.5")
            assert response.status_code == 429
            assert 60 < int(response.headers["retry-after"]) <= 90
            assert outcome_of(response) is Outcome.MINUTE_LIMITED
            assert len(registry.received) == 1
            # Nothing more is sent during the pause.
            again = await place.batch([{"lat": 37.5, "lon": 43.5}, {"lat": 38.5, "lon": 43.5}])
            assert again.status_code == 429
            assert len(registry.received) == 1
