"""Archives and versions over HTTP: what a newcomer downloads, and how a broken download goes on."""

import gzip
import json
import random
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from hasat.feed.archive import write_archives
from hasat.settings import Settings
from hasat.source import Source
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store
from hasat.testing.http import undocumented_operations
from support.archive_tools import GIB, read_ndjson, read_xml, sync, taxpayers
from support.feed_toys import State, head_of, state_digest

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

LISTS = Source("gib", "lists", datasets=(EINVOICE,))
API = "/api/v1/einvoice"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


@pytest.fixture
def sources() -> list[Source]:
    return [LISTS]


async def test_the_operations_are_documented(app: FastAPI) -> None:
    undocumented = undocumented_operations(app)
    assert [one for one in undocumented if "archive" in one or "version" in one] == []


async def test_a_newcomer_starts_from_the_archive_and_goes_on_from_its_cursor(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    state = taxpayers(200, random.Random(1))
    await sync(store, state)
    await write_archives(store, settings, EINVOICE)
    committed = (await client.get(f"{API}/digest")).headers["X-Last-Sync-At"]
    state.pop("0000000007")
    state["0000000014"] = {**state["0000000014"], "title": "yeni"}
    await sync(store, state)

    answer = await client.get(f"{API}/archives/latest?format=ndjson")
    assert answer.status_code == 200
    header, replica = read_ndjson(answer.content)
    assert answer.headers["X-Hasat-Cursor"] == header["cursor"]
    assert answer.headers["X-Hasat-Digest"] == header["digest"] == state_digest(replica).hex()
    assert answer.headers["X-Hasat-Count"] == str(len(replica))
    assert answer.headers["X-Hasat-Epoch"] == header["epoch"]
    # A valid first `since`: the commit that the archive holds, not the newest.
    assert answer.headers["X-Last-Sync-At"] == committed

    by_cursor = await client.get(f"{API}/changes", params={"after": header["cursor"]})
    by_time = await client.get(f"{API}/changes", params={"since": committed})
    for changes in (by_cursor.json()["changes"], by_time.json()["changes"]):
        assert [(one["seq"], one["identifier"]) for one in changes] == [
            (1, "0000000007"),
            (2, "0000000014"),
        ]


async def test_the_list_has_the_names_of_the_original(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    assert (await client.get(f"{API}/archives")).json() == []
    await sync(store, taxpayers(5, random.Random(1)))
    await write_archives(store, settings, EINVOICE)
    listed = (await client.get(f"{API}/archives")).json()
    assert {one["format"] for one in listed} == {"xml", "ndjson", "parquet"}
    for one in listed:
        file = await client.get(f"{API}/archives/{one['fileName']}")
        assert len(file.content) == one["sizeBytes"]
        assert file.headers["ETag"] == f'"{one["sha256"]}"'
        assert file.headers["X-Last-Sync-At"] == one["lastSyncAt"]
        assert one["userCount"] == 5
    xml = await client.get(f"{API}/archives/latest")
    assert xml.headers["Content-Type"] == "application/gzip"
    assert len(read_xml(xml.content)[1]) == 5


async def test_a_download_in_parts_is_the_file_to_the_byte(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    await sync(store, taxpayers(500, random.Random(3)))
    await write_archives(store, settings, EINVOICE)
    url = f"{API}/archives/latest"
    whole = await client.get(url)
    dice = random.Random(4)
    got = b""
    while len(got) < len(whole.content):
        headers = {"If-Range": whole.headers["ETag"], "Range": f"bytes={len(got)}-"}
        if dice.random() < 0.7:
            headers["Range"] += str(len(got) + dice.randrange(1, 9_000))
        part = await client.get(url, headers=headers)
        assert part.status_code == 206
        end = len(got) + len(part.content) - 1
        expected = f"bytes {len(got)}-{end}/{len(whole.content)}"
        assert part.headers["Content-Range"] == expected
        got += part.content
    assert got == whole.content

    other = await client.get(url, headers={"If-Range": '"other"', "Range": "bytes=5-"})
    assert (other.status_code, other.content) == (200, whole.content)
    beyond = await client.get(url, headers={"Range": "bytes=99999999-"})
    assert beyond.status_code == 416
    assert beyond.headers["Content-Range"] == f"bytes */{len(whole.content)}"
    assert beyond.json()["code"] == "range-not-satisfiable"
    known = await client.get(url, headers={"If-None-Match": whole.headers["ETag"]})
    assert (known.status_code, known.content) == (304, b"")
    head = await client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.content))
    assert head.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    "name", ["nothing.xml.gz", "..%2f..%2fetc%2fpasswd", "%2e%2e", "..\\secret", "%00", "a" * 9999]
)
async def test_only_archives_can_be_downloaded(
    client: httpx2.AsyncClient, settings: Settings, store: Store, name: str
) -> None:
    await sync(store, taxpayers(2, random.Random(1)))
    await write_archives(store, settings, EINVOICE)
    (settings.home / settings.archives.base_path / "secret").write_text("hidden")
    answer = await client.get(f"{API}/archives/{name}")
    # A name with a slash is the key of a record instead, and none that a taxpayer can have.
    assert answer.status_code == (400 if "%2f" in name else 404)
    assert "hidden" not in answer.text


async def test_what_is_missing_is_told_with_a_remedy(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    for records in (0, 2):
        none_yet = await client.get(f"{API}/archives/latest")
        assert (none_yet.status_code, none_yet.json()["code"]) == (503, "archive-pending")
        assert int(none_yet.headers["Retry-After"]) > 0
        await sync(store, taxpayers(records, random.Random(1)))
    none = await client.get(f"{API}/archives/none.xml.gz")
    assert (none.status_code, none.json()["code"]) == (404, "no-archive")
    written = await write_archives(store, settings, EINVOICE)
    for archive in written:
        (settings.home / settings.archives.base_path / archive.path).unlink()
    for path in ("latest", written[0].name):
        elsewhere = await client.get(f"{API}/archives/{path}")
        assert elsewhere.status_code == 503
        assert "archives.base_path" in elsewhere.json()["remedy"]


async def replay(client: httpx2.AsyncClient, replica: State, after: int) -> State:
    """The state after every version from the index, applied delta by delta."""
    while True:
        index = (await client.get(f"{API}/versions?after={after}&limit=2")).json()
        for version in index["versions"]:
            lines = gzip.decompress((await client.get(version["delta"])).content).splitlines()
            header, *changes = map(json.loads, lines)
            assert header["hasat"] == "delta"
            assert header["count"] == len(changes)
            assert [one["seq"] for one in changes] == list(
                range(version["seqBefore"] + 1, version["head"] + 1)
            )
            for change in changes:
                if change["changeType"] == "removed":
                    assert change["body"] is None
                    del replica[change["key"]]
                else:
                    replica[change["key"]] = change["body"]
            assert state_digest(replica).hex() == version["digest"] == header["digest"]
        if index["next"] is None:
            return replica
        after = index["next"]


async def test_every_version_has_a_delta_also_an_empty_one(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    dice = random.Random(6)
    state = taxpayers(60, dice)
    await sync(store, state)
    await write_archives(store, settings, EINVOICE)
    replica = dict(state)
    for _ in range(4):
        for key in dice.sample(sorted(state), 5):
            del state[key]
        state[f"8{dice.randrange(10**9):09d}"] = {
            "identifier": "x",
            "title": "ı\u2028",
            "aliases": [],
        }
        await sync(store, state)
        await sync(store, state)
    first = (await client.get(f"{API}/versions?limit=1")).json()["versions"][0]
    assert (first["added"], first["delta"]) == (60, None), "the first filling writes no changes"
    gone = await client.get(f"{API}/deltas/{first['version']}")
    assert (gone.status_code, gone.headers["Cache-Control"]) == (410, "no-store")
    assert await replay(client, replica, first["version"]) == state
    assert state_digest(replica) == (await head_of(store, EINVOICE))["digest"]


async def test_a_delta_is_the_same_bytes_each_time_until_it_expires(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    state = taxpayers(20, random.Random(1))
    await sync(store, state)
    state.popitem()
    version = (await sync(store, state)).id
    await write_archives(store, settings, EINVOICE)
    url = f"{API}/deltas/{version}"
    one, other = await client.get(url), await client.get(url)
    assert one.content == other.content
    known = await client.get(url, headers={"If-None-Match": one.headers["ETag"]})
    assert known.status_code == 304
    async with store.connection() as conn:
        await conn.execute("DELETE FROM feed.change")
        await conn.execute("UPDATE feed.head SET floor = seq")
    assert (await client.get(url)).status_code == 410
    index = (await client.get(f"{API}/versions")).json()["versions"]
    assert [entry["delta"] for entry in index] == [None, None]
    assert (await client.get(f"{API}/deltas/999")).status_code == 404


async def test_health_tells_of_the_storage_and_stays_alive(
    client: httpx2.AsyncClient, settings: Settings
) -> None:
    async def storage() -> Any:
        answer = await client.get("/health")
        assert answer.status_code == 200
        return answer.json()["checks"]["archive_storage"]

    assert await storage() == {"status": "Healthy", "description": None}
    folder = settings.home / settings.archives.base_path
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert (await storage())["status"] == "Degraded"
    assert (await client.get("/healthz")).status_code == 200
