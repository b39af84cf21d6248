"""Looking taxpayers up over HTTP, in the original service's form."""

from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from pathlib import Path

import httpx2
import pytest
from anyio.from_thread import BlockingPortal

from hasat.jobs import Catalogue
from hasat.serve import create_app
from hasat.settings import Settings
from hasat.sources.gib.source import GIB
from hasat.sources.gib.sync import synchronise
from hasat.store import MigrationSet, open_store
from hasat.testing.database import throw_away_database

pytestmark = pytest.mark.anyio

MIGRATIONS = [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]
USER = """<User><Identifier>{id}</Identifier><Title>{title}</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents><Document type="Invoice">
<Alias><Name> urn:mail:pk@{id}.tr</Name><CreationTime>2019-05-01T10:00:00</CreationTime></Alias>
</Document></Documents></User>"""


@pytest.fixture
def settings(background: BlockingPortal, server_url: str, tmp_path: Path) -> Iterator[Settings]:
    with background.wrap_async_context_manager(
        throw_away_database(server_url, MIGRATIONS)
    ) as database:
        yield database.settings(tmp_path)


def _write(folder: Path, *titles: str) -> dict[str, Path]:
    users = [USER.format(id=f"{1234567890 + n}", title=title) for n, title in enumerate(titles)]
    paths = {}
    for box in ("PK", "GB"):
        paths[box] = folder / f"{box}.xml"
        paths[box].write_text(f"<UserList>{''.join(users)}</UserList>", "utf-8")
    return paths


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_store(settings, MIGRATIONS) as store:
        app = create_app(settings, store, Catalogue.of([], settings), [GIB])
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/api/v1/einvoice/1234567890")).status_code == 503
            lists = _write(tmp_path, "IŞIK A.Ş.", "ÇAĞ LTD")
            await synchronise(store, settings, lists, run=1)
            yield client


async def test_a_taxpayer_is_found_as_the_original_shows_him(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/einvoice/1234567890")
    assert answer.status_code == 200
    assert answer.headers["X-Last-Sync-At"]
    found = answer.json()
    assert found["title"] == "IŞIK A.Ş."
    assert found["accountType"] is None
    assert found["aliases"] == [
        {"name": "urn:mail:pk@1234567890.tr", "type": box, "creationTime": "2019-05-01T10:00:00"}
        for box in ("GB", "PK")
    ]
    assert (found["identifierKind"], found["identifierValid"]) == ("VKN", True)


async def test_who_is_not_there_is_a_404_and_what_is_no_number_a_400(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.get("/api/v1/einvoice/9999999999")).status_code == 404
    assert (await client.get("/api/v1/edespatch/1234567890")).status_code == 404
    assert (await client.get("/api/v1/einvoice/12345")).status_code == 400


async def test_was_he_registered_by_that_time(client: httpx2.AsyncClient) -> None:
    path = "/api/v1/einvoice/1234567890?firstCreationTime="
    assert (await client.get(f"{path}2019-05-01T10:00:00")).status_code == 200
    assert (await client.get(f"{path}2019-05-01 09:59:59")).status_code == 404
    assert (await client.get(f"{path}soon")).status_code == 400


async def test_many_are_looked_up_at_once(client: httpx2.AsyncClient) -> None:
    wanted = ["1234567891", "0000000000", "1234567890", "1234567891"]
    answer = await client.post("/api/v1/einvoice/batch", json={"identifiers": wanted})
    found = answer.json()
    assert [item["identifier"] for item in found["items"]] == ["1234567891", "1234567890"]
    assert found["notFound"] == ["0000000000"]
    assert (found["totalRequested"], found["totalFound"]) == (3, 2)
    too_many = [f"{n:010d}" for n in range(1001)]
    refused = await client.post("/api/v1/einvoice/batch", json={"identifiers": too_many})
    assert refused.status_code == 422


async def test_status_and_health_speak_of_the_lists(client: httpx2.AsyncClient) -> None:
    status = (await client.get("/api/v1/status")).json()
    assert (status["eInvoiceUserCount"], status["eDespatchUserCount"]) == (2, 0)
    assert status["lastSyncAt"]
    assert [source["name"] for source in status["sources"]] == ["gib"]
    health = (await client.get("/health")).json()
    assert health["checks"]["sync_freshness"]["status"] == "Healthy"


async def test_every_route_of_the_source_is_described(client: httpx2.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for dataset in ("einvoice", "edespatch"):
        for door in ("changes", "digest", "{key}/history", "{identifier}", "batch"):
            assert f"/api/v1/{dataset}/{door}" in paths
