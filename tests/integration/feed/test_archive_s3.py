"""Archives in a bucket: an S3 store in a process of its own, on loopback."""

import hashlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hasat.api.app import create_app
from hasat.errors import UnavailableError
from hasat.feed.archive import Storage, storage_of, write_archives
from hasat.feed.archive.catalog import latest_archive, list_archives
from hasat.feed.archive.storage import MissingError
from hasat.feed.archive.verification import verify
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client
from support import s3_server
from support.feed_toys import TOYS, State, make_table, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, s3_server.__file__, "archives", "me", "hush"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


def chosen(database: ThrowAwayDatabase, home: Path, address: str, **others: str) -> Settings:
    """Settings as the original service's environment spells them."""
    return load_settings(
        environ={
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "ArchiveStorage__Provider": "S3",
            "ArchiveStorage__BucketName": "archives",
            "ArchiveStorage__Region": "eu-central-1",
            "ArchiveStorage__ServiceUrl": address,
            "ArchiveStorage__AccessKey": "me",
            "ArchiveStorage__SecretKey": "hush",
            **others,
        }
    )


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path, address: str) -> Settings:
    return chosen(database, tmp_path, address)


async def read(place: Storage, path: str, start: int, stop: int) -> bytes:
    return b"".join([piece async for piece in place.read(path, start, stop)])


async def test_a_large_file_goes_up_in_parts_and_comes_back_in_any(settings: Settings) -> None:
    place = storage_of(settings)
    content = random.Random(1).randbytes(20_000_000)
    place.draft("toys/big").write_bytes(content)
    assert await place.size("toys/big") is None
    await place.publish("toys/big")
    assert await place.size("toys/big") == len(content)
    assert not place.draft("toys/big").exists()
    assert await read(place, "toys/big", 0, len(content)) == content
    assert await read(place, "toys/big", 9_999_999, 12_345_678) == content[9_999_999:12_345_678]
    await place.remove("toys/big")
    await place.remove("toys/big")
    assert await place.size("toys/big") is None
    with pytest.raises(MissingError, match="bucket archives"):
        await read(place, "toys/big", 0, 5)


async def test_archives_are_written_served_in_parts_and_expired(
    store: Store, settings: Settings
) -> None:
    await make_table(store)
    state: State = {f"{n:05d}": {"name": random.Random(n).randbytes(20).hex()} for n in range(500)}
    await run(store, state)
    first = await write_archives(store, settings, TOYS)
    place = storage_of(settings)
    for archive in first:
        assert (await verify(place, archive)).faults == ()
    shop = Source("toy_shop", "toys", datasets=(TOYS,))
    app = create_app(settings, store, Catalogue.of([], settings), [shop])
    async with app_client(app) as client:
        url = "/api/v1/toys/archives/latest"
        whole = await client.get(url)
        assert hashlib.sha256(whole.content).hexdigest() == whole.headers["X-Hasat-Sha256"]
        part = await client.get(url, headers={"Range": "bytes=100-"})
        assert (part.status_code, part.content) == (206, whole.content[100:])
        health = (await client.get("/health")).json()["checks"]
        assert health["archive_storage"]["status"] == "Healthy"

    state.popitem()
    await run(store, state)
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.archive SET created_at = created_at - interval '8 days'")
    second = await write_archives(store, settings, TOYS)
    assert {one.name for one in await list_archives(store, "toys")} == {one.name for one in second}
    assert [await place.size(one.path) for one in first] == [None, None]
    assert not list((settings.home / "archives").glob(".*.part"))


async def test_another_machine_reads_the_same_bucket(
    store: Store, settings: Settings, database: ThrowAwayDatabase, tmp_path: Path, address: str
) -> None:
    await make_table(store)
    await run(store, {"a": {}})
    written = await write_archives(store, settings, TOYS)
    elsewhere = chosen(database, tmp_path / "elsewhere", address)
    assert await latest_archive(store, storage_of(elsewhere), "toys", "ndjson") in written
    assert await write_archives(store, elsewhere, TOYS) == []


@pytest.mark.parametrize(
    "wrong",
    [{"ArchiveStorage__SecretKey": "loud"}, {"ArchiveStorage__BucketName": "other"}],
)
async def test_a_store_that_refuses_is_told_and_leaves_the_old_archive(
    store: Store,
    settings: Settings,
    database: ThrowAwayDatabase,
    tmp_path: Path,
    address: str,
    wrong: dict[str, str],
) -> None:
    await make_table(store)
    await run(store, {"a": {}})
    written = await write_archives(store, settings, TOYS)
    refused = chosen(database, tmp_path, address, **wrong)
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await write_archives(store, refused, TOYS, force=True)
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await storage_of(refused).probe()
    assert {one.name for one in await list_archives(store, "toys")} == {one.name for one in written}
