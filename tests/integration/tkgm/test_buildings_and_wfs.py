"""Blocks and units from the registry, and parcels from the official service."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hasat.errors import BrokenAnswerError, HasatError, SettingsError, UsageError
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sources.tkgm.buildings.records import parse_rows
from hasat.sources.tkgm.geometry import geodesic_area, parse_area
from hasat.sources.tkgm.simulator.buildings import blocks_of, units_of
from hasat.sources.tkgm.simulator.server import API, TKGM, SimulatedRegistry
from hasat.sources.tkgm.source import COPY, SCAN, UNITS
from hasat.sources.tkgm.source import TKGM as SOURCE
from hasat.sources.tkgm.wfs.features import exception_text, parse_page
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.jobs import perform

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [SOURCE.migration_set]


class Office:
    def __init__(self, store: Store, settings: Settings, upstream: SimulatedRegistry) -> None:
        self.store = store
        self.settings = settings
        self.upstream = upstream
        west, south, east, north = upstream.cadastre.area().bounds
        self.area = f"{west - 0.001},{south - 0.001},{east + 0.001},{north + 0.001}"

    async def bodies(self, dataset: str) -> dict[str, Any]:
        async with self.store.connection() as conn:
            cursor = await conn.execute(f"SELECT key, body FROM core.{dataset}")
            return dict(await cursor.fetchall())


@asynccontextmanager
async def office(
    database: ThrowAwayDatabase, home: Path, environ: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Office]:
    simulation = Simulation(TKGM, seed=4, options={"parcels": 60, **options})
    async with simulate(simulation) as address:
        settings = load_settings(
            environ={
                "HASAT_HOME": str(home),
                "HASAT_DATABASE_URL": database.url,
                "HASAT_TKGM_REGISTRY_URL": f"{address}{API}",
                "HASAT_TKGM_REGISTRY_PER_MINUTE": "6000",
                "HASAT_TKGM_WORKERS_FILE": str(home / "workers.json"),
                "HASAT_TKGM_WFS_URL": f"{address}/wfs",
                "HASAT_TKGM_WFS_USER": "sim",
                "HASAT_TKGM_WFS_PASSWORD": "sim",
                "HASAT_TKGM_WFS_PAGE_SIZE": "25",
                "HASAT_TKGM_WFS_PER_MINUTE": "6000",
                **(environ or {}),
            }
        )
        workers = simulation.inside.workers_json(address, min_interval_ms=0)
        (home / "workers.json").write_text(json.dumps(workers))
        async with open_store(settings, [SOURCE.migration_set]) as store:
            yield Office(store, settings, simulation.inside)


async def test_the_official_service_is_copied_complete_and_follows_changes(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path) as place:
        first = await perform(COPY, place.store, place.settings, {"area": place.area})
        assert first.kind == "done"
        truth = {"/".join(map(str, one.key)): one for one in place.upstream.cadastre.parcels}
        found = await place.bodies("parcels")
        assert found.keys() == truth.keys()
        for key, body in found.items():
            assert body["properties"]["alan"] == pytest.approx(truth[key].square_metres, abs=0.01)
            assert geodesic_area(parse_area(body["geometry"])) == pytest.approx(
                geodesic_area(truth[key].outline), rel=1e-6
            )
        again = await perform(COPY, place.store, place.settings, {"area": place.area})
        assert again.rows_changed == 0

        gone = place.upstream.merge_two()
        after = await perform(COPY, place.store, place.settings, {"area": place.area})
        assert after.rows_changed == 3
        assert not gone & (await place.bodies("parcels")).keys()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"HASAT_TKGM_WFS_PASSWORD": "wrong"}, HasatError),
        ({"HASAT_TKGM_WFS_USER": ""}, SettingsError),
    ],
)
async def test_without_credentials_nothing_changes(
    database: ThrowAwayDatabase, tmp_path: Path, change: dict[str, str], error: type[HasatError]
) -> None:
    async with office(database, tmp_path, change) as place:
        with pytest.raises(error):
            await perform(COPY, place.store, place.settings, {"area": place.area})
        assert await place.bodies("parcels") == {}


async def test_the_day_of_the_official_service_is_respected(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path, {"HASAT_TKGM_WFS_DAILY": "1"}) as place:
        stopped = await perform(COPY, place.store, place.settings, {"area": place.area})
        assert stopped.kind == "out_of_quota"
        # What was received is published, and nothing counts as gone.
        assert len(await place.bodies("parcels")) == 25


async def test_buildings_of_an_area(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with office(database, tmp_path) as place:
        await perform(COPY, place.store, place.settings, {"area": place.area})
        outcome = await perform(UNITS, place.store, place.settings, {"area": place.area})
        assert outcome.kind == "done"
        truth = {
            "/".join(map(str, one.key)): one
            for one in place.upstream.cadastre.parcels
            if one.is_condominium
        }
        found = await place.bodies("buildings")
        assert found.keys() == truth.keys()
        for key, record in found.items():
            blocks = blocks_of(truth[key])
            assert [one["blok"] for one in record["blocks"]] == [one["blok"] for one in blocks]
            units = [units_of(truth[key], one["blok"]) for one in blocks]
            assert record["unitCount"] == sum(map(len, units))
            assert [one["no"] for one in record["blocks"][0]["units"]] == [
                one["no"] for one in units[0]
            ]
        # Within the age of parcels, they are not requested again.
        again = await perform(UNITS, place.store, place.settings, {"area": place.area})
        assert again.kind == "nothing"


async def test_buildings_of_named_parcels_and_the_end_of_the_day(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    daily = {"HASAT_TKGM_REGISTRY_DAILY": "3"}
    async with office(database, tmp_path, daily) as place:
        parcels = place.upstream.cadastre.parcels
        homes = [one for one in parcels if one.is_condominium][:3]
        field = next(one for one in parcels if not one.is_condominium)
        keys = ["/".join(map(str, one.key)) for one in (field, *homes)]
        outcome = await perform(UNITS, place.store, place.settings, {"parcels": ",".join(keys)})
        assert outcome.kind == "out_of_quota"
        # One request for the field, two for the first home.
        assert set(await place.bodies("buildings")) <= set(keys[1:2])
        for wrong in ("1162/1", "a/b/c", "1/2/3/4"):
            with pytest.raises(UsageError):
                await perform(UNITS, place.store, place.settings, {"parcels": wrong})
        with pytest.raises(UsageError):
            await perform(UNITS, place.store, place.settings, {})


async def test_what_was_received_rebuilds_parcels_and_buildings(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path) as place:
        await perform(COPY, place.store, place.settings, {"area": place.area})
        await perform(UNITS, place.store, place.settings, {"area": place.area})
        for name in ("parcels", "buildings"):
            before = await place.bodies(name)
            async with place.store.connection() as conn:
                await conn.execute(
                    f"DELETE FROM core.{name} WHERE key = (SELECT min(key) FROM core.{name})"
                )
                await conn.execute(
                    f"UPDATE core.{name} SET body = '{{}}'"
                    f" WHERE key = (SELECT max(key) FROM core.{name})"
                )
            dataset, rebuild = SOURCE.rebuilds[name]
            summary = await rebuild(place.store, place.settings, dataset)
            [result] = summary.datasets
            assert (result.how, result.repaired, summary.unreadable) == ("repaired", 2, 0)
            assert await place.bodies(name) == before


async def test_a_sample_measures_a_scan_and_the_scan_reuses_it(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path) as place:
        params = {"area": place.area, "estimate": True}
        sample = await perform(SCAN, place.store, place.settings, params)
        assert sample.kind == "done"
        assert sample.message is not None
        assert "95 %" in sample.message
        forecast = sample.detail["forecast"]
        assert forecast["low"] <= forecast["parcels"] <= forecast["high"]
        async with place.store.connection() as conn:
            cursor = await conn.execute("SELECT id, finished_at FROM tkgm.scan")
            ((scan, finished),) = await cursor.fetchall()
        assert finished is None
        whole = await perform(SCAN, place.store, place.settings, {"area": place.area})
        assert whole.detail["scan"] == scan
        assert whole.detail["complete"]


def test_features_of_the_service_in_other_forms() -> None:
    gml = b"""<FeatureCollection xmlns:g="http://www.opengis.net/gml">
      <g:featureMembers><parseller><adano>101</adano><parselno>7</parselno>
      <tapumahalleref>1162</tapumahalleref><tapualan>950.5</tapualan><geom><g:Polygon>
      <g:exterior><g:LinearRing><g:posList>32.85 39.9 32.86 39.9 32.86 39.91 32.85 39.9</g:posList>
      </g:LinearRing></g:exterior></g:Polygon></geom></parseller>
      <parseller><adano>101</adano></parseller></g:featureMembers></FeatureCollection>"""
    page = parse_page(gml)
    assert [one.key for one in page.parcels] == [(1162, "101", "7")]
    assert (page.features, len(page.unreadable)) == (2, 1)
    page = parse_page(
        b'{"type": "FeatureCollection", "features": [{"properties": {"adano": 101, "parselno": 7,'
        b' "tapumahalleref": "1162"}, "geometry": null}]}'
    )
    assert page.parcels[0].properties["mahalleId"] == 1162
    for broken in (b"", b"<x/>", b"{}", b"no", b'{"features": [1]}'):
        with pytest.raises(BrokenAnswerError):
            parse_page(broken)
    assert exception_text(b"<ExceptionReport><ExceptionText>no</ExceptionText></ExceptionReport>")
    assert exception_text(gml) is None
    for broken in (b"[]", b"{}", b'{"features": [{}]}', b"<a/>"):
        with pytest.raises(BrokenAnswerError):
            parse_rows(broken)
