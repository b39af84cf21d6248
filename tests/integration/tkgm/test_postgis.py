"""Geometries for GIS programs where the database has PostGIS, and everything else without it."""

from importlib.resources import files
from pathlib import Path

import psycopg
import pytest

from hasat.settings import Settings
from hasat.sources.tkgm.features import remove_parcels
from hasat.sources.tkgm.source import TKGM
from hasat.store import MigrationSet, Store, open_store
from hasat.store.backup import back_up, restore
from hasat.store.store import reach
from support.parcels import parcel, publish_features, square, street

pytestmark = pytest.mark.anyio

# The schema is made when the store opens, after the extension is there.
WITHOUT = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
SETS = [TKGM.migration_set]


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [WITHOUT]


async def _install(store: Store) -> None:
    try:
        async with store.connection() as conn:
            await conn.execute("CREATE EXTENSION postgis")
    except psycopg.Error as error:
        pytest.skip(f"this server has no PostGIS: {str(error).splitlines()[0]}")


async def _geometries(store: Store) -> dict[str, tuple[str, bool]]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT key, ST_GeometryType(geom), ST_Covers(geom, ST_PointOnSurface(geom))"
            " FROM tkgm_gis.parcels WHERE geom IS NOT NULL"
        )
        return {key: (kind, inside) for key, kind, inside in await cursor.fetchall()}


async def test_without_postgis_nothing_is_made(settings: Settings, store: Store) -> None:
    await publish_features(store, street(3))
    async with open_store(settings, SETS) as opened, opened.connection() as conn:
        cursor = await conn.execute("SELECT to_regnamespace('tkgm_gis') IS NULL")
        assert await cursor.fetchone() == (True,)


async def test_geometries_follow_the_parcels_and_can_be_searched(
    settings: Settings, store: Store
) -> None:
    await _install(store)
    await publish_features(store, street(3))
    async with open_store(settings, SETS) as opened:
        outlines = await _geometries(opened)
        assert set(outlines) == {"1162/101/1", "1162/101/2", "1162/101/3", "1162/102/1"}
        assert set(outlines.values()) == {("ST_MultiPolygon", True)}

        await publish_features(opened, [parcel(9, square(9)), parcel(1, square(20))])
        await remove_parcels(opened, ["1162/101/2"], run=None, known=3)
        assert set(await _geometries(opened)) == {
            "1162/101/1",
            "1162/101/3",
            "1162/101/9",
            "1162/102/1",
        }
        async with opened.connection() as conn:
            cursor = await conn.execute(
                "SELECT key, alan, nitelik FROM tkgm_gis.parcels"
                " WHERE geom && ST_MakeEnvelope(32.8701, 39.9, 32.8705, 39.9005, 4326)"
            )
            assert await cursor.fetchall() == [("1162/101/1", 9500.0, "Arsa")]
            await conn.execute("SET LOCAL enable_seqscan = off")
            cursor = await conn.execute(
                "EXPLAIN SELECT key FROM tkgm_gis.parcels"
                " WHERE geom && ST_MakeEnvelope(32.87, 39.9, 32.88, 39.91, 4326)"
            )
            plan = "\n".join(line for (line,) in await cursor.fetchall())
            assert "parcel_geometry_geom" in plan
            cursor = await conn.execute(
                "SELECT type, srid FROM geometry_columns WHERE f_table_schema = 'tkgm_gis'"
            )
            assert set(await cursor.fetchall()) == {("MULTIPOLYGON", 4326)}


async def test_a_damaged_geometry_or_a_dropped_extension_loses_no_parcel(
    settings: Settings, store: Store
) -> None:
    await _install(store)
    async with open_store(settings, SETS) as opened:
        await publish_features(opened, street(2))
        async with opened.connection() as conn:
            await conn.execute(
                "UPDATE core.parcels SET body = jsonb_set(body, '{geometry,type}', '\"Odd\"')"
                " WHERE key = '1162/101/1'"
            )
        assert "1162/101/1" not in await _geometries(opened)
        async with opened.connection() as conn:
            await conn.execute("DROP EXTENSION postgis CASCADE")
        await publish_features(opened, [parcel(7, square(7))])
        await _install(opened)
    async with open_store(settings, SETS) as opened:
        assert "1162/101/7" in await _geometries(opened)


async def test_a_backup_needs_no_postgis(settings: Settings, tmp_path: Path) -> None:
    async with open_store(settings, SETS) as store:
        await _install(store)
    async with open_store(settings, SETS) as store:
        await publish_features(store, street(2))
        assert len(await _geometries(store)) == 3
    async with reach(settings) as reached:
        await back_up(reached, tmp_path / "backup", None)
        await restore(reached, tmp_path / "backup", None, SETS, replace=True)
    async with open_store(settings, SETS) as store:
        assert len(await _geometries(store)) == 3
