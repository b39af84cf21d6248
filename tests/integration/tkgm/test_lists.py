"""Lists of parcels: every row is accounted for, other columns stay, and a list is resumed."""

import csv
import io
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyogrio.raw
import pytest
import shapely
from openpyxl import Workbook, load_workbook

from hasat.api.app import create_app
from hasat.errors import SettingsError, UsageError
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sources.tkgm.export import ExportOptions
from hasat.sources.tkgm.lists.fetch import ListFetch, ListResult, list_id
from hasat.sources.tkgm.lists.files import write_result
from hasat.sources.tkgm.lists.rows import NamedParcel, read_list
from hasat.sources.tkgm.registry.client import open_registry
from hasat.sources.tkgm.registry.wire import Point
from hasat.sources.tkgm.simulator.server import API, TKGM, SimulatedRegistry
from hasat.sources.tkgm.source import TKGM as TKGM_SOURCE
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
BY_NUMBER = {"by_number": "/parsel/{mahalleId}/{adaNo}/{parselNo}", "min_interval_ms": 0}


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Office:
    """A simulated registry with one neighbourhood, and lists that are worked on."""

    def __init__(self, store: Store, settings: Settings, sim: Simulation, workers: Path) -> None:
        self.store = store
        self.settings = settings
        self.workers = workers
        self.upstream: SimulatedRegistry = sim.inside
        self.sim = sim

    async def fetch(self, path: Path, **more: Any) -> ListResult:
        async with open_registry(self.store, self.settings, self.workers) as registry:
            work = ListFetch(
                self.store, self.settings, registry, read_list(path), list_id(path), **more
            )
            return await work.run()

    def requests(self) -> int:
        return sum(count for path, count in self.sim.requests.items() if "/e" in path)


@asynccontextmanager
async def office(
    database: ThrowAwayDatabase, home: Path, entry: Any = BY_NUMBER, **options: Any
) -> AsyncIterator[Office]:
    world = {"parcels": 60, "endpoints": 3, **options}
    simulation = Simulation(TKGM, seed=4, options=world)
    async with simulate(simulation) as address:
        environ = {
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_TKGM_REGISTRY_URL": f"{address}{API}",
            "HASAT_TKGM_REGISTRY_PER_MINUTE": "6000",
        }
        workers = home / "workers.json"
        workers.write_text(json.dumps(simulation.inside.workers_json(address, **entry)))
        settings = load_settings(environ=environ | {"HASAT_TKGM_WORKERS_FILE": str(workers)})
        async with open_store(settings, [MIGRATIONS]) as store:
            yield Office(store, settings, simulation, workers)


def workbook(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(list(row))
    book.save(path)
    return path


PLACES = ("İstanbul", "ISTANBUL", "istanbul"), ("Kadıköy", "KADIKÖY", "kadikoy ")
NAMES = ("Tuğlacı Başı", "TUĞLACI BAŞI", "tuglaci basi mah.", "Tuglacı Başı Mahallesi")


async def test_a_workbook_of_three_hundred_rows(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with office(database, tmp_path) as place:
        parcels = place.upstream.cadastre.parcels
        rows: list[list[Any]] = [["Müşteri", "İL", "İlçe", "MAHALLE/KÖY", "Ada No", "Parsel", "€"]]
        expected: list[str | None] = []
        for number in range(300):
            one = dice.choice(parcels)
            ada: Any = dice.choice([one.ada, int(one.ada), float(one.ada)])
            parsel: Any = one.parsel
            names = [dice.choice(PLACES[0]), dice.choice(PLACES[1]), dice.choice(NAMES)]
            fate = dice.random()
            if fate < 0.1:
                parsel = "9999"
            elif fate < 0.15:
                names[2] = "Olmayan Köy"
            elif fate < 0.2:
                parsel = None
            found = fate >= 0.2
            expected.append(f"{one.mahalle_id}/{one.ada}/{one.parsel}" if found else None)
            rows.append([f"Şükrü {number}", *names, ada, parsel, 1.5])
        path = workbook(tmp_path / "liste.xlsx", rows)
        seen: list[float] = []
        result = await place.fetch(path, on_progress=lambda done, _total, _note: seen.append(done))
        assert result.counts["found"] == sum(one is not None for one in expected)
        assert result.counts["unanswered"] == 0
        assert seen == sorted(seen)
        assert max(place.upstream.points.values(), default=0) <= 1
        # Each parcel is requested once, whatever the number of its rows; hedges come on top.
        asked = {(int(row[4]), row[5]) for row in rows[1:] if row[5]}
        assert place.requests() <= len(asked) * 1.02 + 2

        out = tmp_path / "sonuc.xlsx"
        assert write_result(result, out, ExportOptions(), "tr") is None
        sheet = load_workbook(out).active
        assert sheet is not None
        heads, *lines = [list(row) for row in sheet.iter_rows(values_only=True)]
        assert heads[:7] == rows[0]
        written = [dict(zip(heads, line, strict=True)) for line in lines]
        assert [one["Müşteri"] for one in written] == [row[0] for row in rows[1:]]
        for line, key in zip(written, expected, strict=True):
            assert line["€"] == 1.5
            if key is None:
                assert line["note"]
                assert line["mahalleId"] is None
            else:
                assert line["note"] in (None, "")
                assert f"{line['mahalleId']}/{line['adaNo']}/{line['parselNo']}" == key
                assert 30 < line["lat"] < 45

        maps = tmp_path / "sonuc.gpkg"
        missing = write_result(result, maps, ExportOptions(), "en")
        about, _, geometries, columns = pyogrio.raw.read(maps, layer="parcels")
        fields = dict(zip(about["fields"], columns, strict=True))
        assert len(geometries) == result.counts["found"]
        assert fields["Müşteri"].tolist() == [
            row[0] for row, key in zip(rows[1:], expected, strict=True) if key
        ]
        assert missing is not None
        left = list(csv.DictReader(missing.read_text("utf-8-sig").splitlines(), delimiter=";"))
        assert len(left) == 300 - len(geometries)
        assert {one["note"] for one in left} >= {"there is no such parcel"}


async def test_points_with_decimal_commas(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with office(database, tmp_path) as place:
        inside = [one.ground.representative_point() for one in place.upstream.cadastre.parcels[:45]]
        lines = ["no;Enlem;Boylam"]
        lines += [f"{n};{p.y:.6f};{p.x:.6f}".replace(".", ",") for n, p in enumerate(inside)]
        lines += ["45;1,5;2,5", "46;95;2", "47;;"]
        path = tmp_path / "noktalar.csv"
        path.write_text("\n".join(lines), "utf-8")
        result = await place.fetch(path)
        assert result.counts == {"found": 45, "notFound": 3, "unanswered": 0}
        out = tmp_path / "parcels.geojson"
        write_result(result, out, ExportOptions(), "en")
        features = json.loads(out.read_text())["features"]
        for point, feature in zip(inside, features, strict=True):
            outline = shapely.from_geojson(json.dumps(feature["geometry"]))
            assert outline.distance(point) < 1e-5
        assert [one["properties"]["no"] for one in features[:2]] in (["0", "1"], [0, 1])


async def test_a_list_is_resumed_the_next_day(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with office(database, tmp_path, {**BY_NUMBER, "daily": 5}, endpoints=2) as place:
        parcels = place.upstream.cadastre.parcels[:25]
        rows: list[list[Any]] = [["mahalleId", "ada/parsel"]]
        rows += [[one.mahalle_id, f"{one.ada}/{one.parsel}"] for one in parcels]
        path = workbook(tmp_path / "liste.xlsx", rows)
        first = await place.fetch(path)
        assert first.stopped is not None
        assert first.counts == {"found": 10, "notFound": 0, "unanswered": 15}
        # More endpoints the next day, and the short-lived responses are gone.
        async with place.store.connection() as conn:
            await conn.execute("DELETE FROM tkgm.answer")
        declared = json.loads(place.workers.read_text())
        for one in declared["workers"]:
            one["daily"] = 1000
        place.workers.write_text(json.dumps(declared))
        before = place.requests()
        second = await place.fetch(path)
        assert second.counts == {"found": 25, "notFound": 0, "unanswered": 0}
        assert place.requests() - before == 15
        async with place.store.connection() as conn:
            cursor = await conn.execute("SELECT count(*) FROM tkgm.list_response")
            assert await cursor.fetchone() == (0,)


async def test_numbers_without_an_endpoint_for_them(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path, {"min_interval_ms": 0}) as place:
        path = tmp_path / "liste.csv"
        path.write_text("mahalleId;ada;parsel\n1162;1;2\n", "utf-8")
        result = await place.fetch(path)
        [row] = result.results
        assert row.reason == "no endpoint of the workers.json supports requests by number"
        assert place.requests() == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ad;soyad\nA;B\n", "does not say which parcels"),
        ("il;ilçe;ada;parsel\nA;B;1;2\n", "does not say which parcels"),
        ("lat\n39\n", "does not say which parcels"),
        ("", "is empty"),
    ],
)
async def test_files_that_are_no_lists(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "liste.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=expected):
        read_list(path)


async def test_rows_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    path = tmp_path / "liste.csv"
    path.write_text(
        "Taşınmaz listesi\n"
        "İl;İlçe;Mahalle;Ada;Parsel;Lat;Lon\n"
        "Ankara;Çankaya;Kızılay;0;7;;\n"
        "Ankara;Çankaya;Kızılay;;7;;\n"
        "Ankara;;Kızılay;1;7;;\n"
        ";;;;;39,9;32.8\n"
        ";;;;;kuzey;32.8\n"
        ";;;;;;\n"
        ";;;12;;;\n",
        "utf-8",
    )
    rows = read_list(path).rows
    village = NamedParcel("Ankara/Çankaya/Kızılay", "0", "7")
    assert [one.target for one in rows] == [village, village, None, Point(39.9, 32.8), None, None]
    assert [one.number for one in rows] == [3, 4, 5, 6, 7, 9]
    assert [bool(one.problem) for one in rows] == [False, False, True, False, True, True]


async def test_an_uploaded_list(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with office(database, tmp_path) as place:
        settings = place.settings
        [one] = place.upstream.cadastre.parcels[:1]
        inside = one.ground.representative_point()
        text = f"not;enlem;boylam\nŞükrü;{inside.y};{inside.x}\nyol;1,5;2,5\n"
        upload = {"file": ("liste.csv", text.encode("utf-8-sig"))}
        app = create_app(settings, place.store, Catalogue.of([], settings), [TKGM_SOURCE])
        async with app_client(app) as client:
            response = await client.post("/api/v1/parcels/list", files=upload)
            assert response.status_code == 200, response.text
            summary = json.loads(response.headers["x-list-summary"])
            assert summary == {
                "rows": 2, "found": 1, "notFound": 1, "unanswered": 0, "stopped": None,
            }  # fmt: skip
            sheet = load_workbook(io.BytesIO(response.content)).active
            assert sheet is not None
            assert [row[0] for row in sheet.iter_rows(values_only=True)] == ["not", "Şükrü", "yol"]
            response = await client.post(
                "/api/v1/parcels/list", files=upload, data={"format": "geojson"}
            )
            [feature] = response.json()["features"]
            assert feature["properties"]["not"] == "Şükrü"
            # The second upload needs no request.
            assert place.requests() == 1
            wrong = {"file": ("liste.csv", b"a;b\n1;2\n")}
            response = await client.post("/api/v1/parcels/list", files=wrong)
            assert response.status_code == 400
            assert "does not say which parcels" in response.json()["detail"]


async def test_a_misspelt_place_comes_with_the_similar_names(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path) as place:
        path = tmp_path / "liste.csv"
        path.write_text("il;ilçe;mahalle;ada;parsel\nİstanbul;Kadıköy;Tuğlacıbşı;1;2\n", "utf-8")
        result = await place.fetch(path)
        [row] = result.results
        assert row.reason is not None
        assert "Did you mean Tuğlacı Başı?" in row.reason
        out = tmp_path / "sonuc.csv"
        write_result(result, out, ExportOptions(), "tr")
        assert "Tuğlacı Başı" in out.read_text("utf-8-sig").splitlines()[1]
        assert place.requests() == 0


async def test_names_without_the_lists_of_the_registry(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with office(database, tmp_path) as place:
        path = tmp_path / "liste.csv"
        path.write_text("il;ilçe;mahalle;ada;parsel\nA;B;C;1;2\n", "utf-8")
        given = {"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": database.url}
        place.settings = load_settings(environ=given)
        with pytest.raises(SettingsError, match="address of the registry"):
            await place.fetch(path)
