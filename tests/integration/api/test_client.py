"""The Python client against a real server: the same results from both of its forms."""

import hashlib
import inspect
import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import anyio.to_thread
import httpx2
import pytest

from hasat.api.app import create_app
from hasat.client import (
    AsyncClient,
    Client,
    ClientError,
    ExpiredError,
    InvalidResponseError,
    MissingLibraryError,
    NotFoundError,
    NotReachableError,
    UnavailableError,
)
from hasat.client.archives import Archive
from hasat.feed.archive import write_archives
from hasat.feed.columns import Column
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.sources.gib.datasets import EDESPATCH
from hasat.sources.gib.source import GIB
from hasat.store import MigrationSet, Store
from support.archive_tools import read_ndjson, sync, taxpayers
from support.feed_toys import TOYS, make_table, run, state_digest

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

COLOURED = replace(TOYS, columns=(Column("colour"), Column("size", "integer")))
SHOP = Source("toy_shop", "A toy shop", datasets=(COLOURED,))
STATE = {f"toy {n}": {"colour": ("red", "blue")[n % 2], "size": n} for n in range(7)}
LISTED = taxpayers(3, random.Random(1))
TAXPAYER = {**LISTED["0000000007"], "title": "ÖRNEK A.Ş."}


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB.migration_set]


@pytest.fixture
async def address(settings: Settings, store: Store) -> AsyncIterator[str]:
    await make_table(store)
    await run(store, STATE, dataset=COLOURED)
    await sync(store, {**LISTED, "0000000007": TAXPAYER})
    await sync(store, {}, EDESPATCH)
    app = create_app(settings, store, Catalogue.of([], settings), [GIB, SHOP])
    with bind("127.0.0.1", 0) as listening:
        listener = Listener(app, listening, on_drain=app.state.notifier.close)
        await listener.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listener.drain()
        await listener.wait_closed()


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: [*inspect.signature(one).parameters]
            for name, one in found
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert {"lookup", "list", "check", "changes", "follow", "archive"} <= methods(Client).keys()


async def test_records_are_looked_up_listed_and_checked(address: str) -> None:
    def use(client: Client) -> None:
        toy = client.lookup("toys", "toy 3")
        assert toy is not None
        assert (toy.key, toy.body) == ("toy 3", STATE["toy 3"])
        assert toy.changed_at is not None
        assert toy.changed_at.utcoffset() is not None
        assert client.lookup("toys", "toy 99") is None
        with pytest.raises(NotFoundError) as caught:
            client.lookup("planes", "1")
        assert caught.value.code == "no-such-path"

        assert [one.key for one in client.list("toys", limit=3)] == [*STATE]
        blue = client.list("toys", colour="blue", sort="-size")
        assert [one.body["size"] for one in blue] == [5, 3, 1]
        large = client.page("toys", limit=2, **{"size.gte": 5})
        assert ([one.key for one in large.records], large.next) == (["toy 5", "toy 6"], None)

        taxpayer = client.lookup("einvoice", "0000000007")
        assert taxpayer is not None
        assert (taxpayer.key, taxpayer.body["title"]) == ("0000000007", "ÖRNEK A.Ş.")
        check = client.check("0000000007")
        assert check.invoice_kind == "e-Fatura"
        assert check.einvoice.registered
        assert check.einvoice.send_to == check.einvoice.aliases[0].alias
        assert not check.edespatch.registered
        many = client.check_many(["0000000007", "9999999999", "O00OOOOOO7"])
        kinds = [one.invoice_kind for one in many.items]
        assert kinds[:2] == ["e-Fatura", "e-Arşiv"]
        assert [one.input for one in many.malformed] == ["O00OOOOOO7"]

    with Client(address) as client:
        await anyio.to_thread.run_sync(use, client)
    async with AsyncClient(address) as asynchronous:
        toy = await asynchronous.lookup("toys", "toy 3")
        assert toy is not None
        assert toy.body == STATE["toy 3"]
        assert [one.key async for one in asynchronous.list("toys", limit=3)] == [*STATE]
        assert (await asynchronous.check("0000000007")).title == "ÖRNEK A.Ş."
        assert (await asynchronous.check_many(["0000000007"])).malformed == ()


async def test_a_copy_is_made_from_an_archive_and_kept_by_changes(
    address: str, settings: Settings, store: Store, tmp_path: Path
) -> None:
    await write_archives(store, settings, COLOURED)
    changed = {**STATE, "toy 0": {"colour": "green", "size": 0}}
    del changed["toy 6"]
    async with AsyncClient(address) as client:
        archive = await client.archive("toys", tmp_path, form="ndjson")
        await run(store, changed, dataset=COLOURED)
        _, copy = read_ndjson(archive.path.read_bytes())
        assert (archive.count, copy) == (7, STATE)
        followed = client.follow("toys", archive.cursor, before=True)
        page = await anext(followed)
        for change in page:
            if change.body is None:
                del copy[change.key]
            else:
                copy[change.key] = dict(change.body)
        digest = await client.digest("toys")
        assert copy == changed
        assert state_digest(copy).hex() == digest.digest
        assert page.next == digest.cursor
        kinds = {one.key: (one.type, one.fields) for one in page}
        assert kinds == {"toy 0": ("modified", ("colour",)), "toy 6": ("removed", ())}
        assert [one.key async for one in client.changes("toys", archive.cursor)] == [*kinds]
        only = await client.change_page("toys", archive.cursor, only=["toy 6"])
        assert [one.key for one in only] == ["toy 6"]
        listed = await client.archives("toys")
        assert {one.format for one in listed} >= {"ndjson", "parquet"}
        assert [one["changeType"] for one in await client.history("toys", "toy 0")] == ["modified"]
        with pytest.raises(ExpiredError) as caught:
            await client.change_page("toys", (await client.digest("einvoice")).cursor)
        assert "archives/latest" in str(caught.value)

    def use(client: Client) -> None:
        found = client.archive("toys", tmp_path / "sync", form="parquet")
        assert found.path.read_bytes()[:4] == b"PAR1"
        assert found.digest == archive.digest
        assert [one.key for one in client.changes("toys", found.cursor)] == ["toy 0", "toy 6"]
        assert next(client.follow("toys", found.cursor)).up_to_date
        assert client.history("toys", "toy 6")[0]["changeType"] == "removed"
        assert len(client.archives("toys")) == len(listed)

    with Client(address) as client:
        await anyio.to_thread.run_sync(use, client)


def responding(*responses: httpx2.Response) -> tuple[httpx2.MockTransport, list[httpx2.Request]]:
    """Return a server that sends these responses, and the requests that it gets."""
    left, requests = list(responses), list[httpx2.Request]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return left.pop(0)

    return httpx2.MockTransport(respond), requests


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr("hasat.client.client.time.sleep", pauses.append)
    return pauses


def test_an_unavailable_server_is_asked_again_after_the_time_it_names(
    no_pause: list[float],
) -> None:
    away = httpx2.Response(503, headers={"Retry-After": "7"}, json={"code": "database-away"})
    found = {"digest": "d", "count": 1, "cursor": "c", "epoch": "e", "head": 1}
    transport, requests = responding(away, away, httpx2.Response(200, json=found))
    assert Client("http://hasat.example", transport=transport).digest("toys").count == 1
    assert no_pause == [7, 7]

    transport, requests = responding(away)
    with pytest.raises(UnavailableError) as caught:
        Client("http://hasat.example", "hsk_x", retries=0, transport=transport).digest("toys")
    assert (caught.value.code, caught.value.retry_after) == ("database-away", 7)
    assert requests[0].headers["Authorization"] == "Bearer hsk_x"


def test_what_is_no_hasat_server_is_named(no_pause: list[float]) -> None:
    transport, _ = responding(httpx2.Response(200, text="<html>"))
    with pytest.raises(InvalidResponseError, match=r"hasat\.example"):
        Client("http://hasat.example", transport=transport).digest("toys")
    with pytest.raises(NotReachableError, match=r"127\.0\.0\.1"):
        Client("http://127.0.0.1:1", retries=1).digest("toys")
    assert len(no_pause) == 1


class Body(httpx2.SyncByteStream):
    """A body that arrives in one piece, after which the connection may break."""

    def __init__(self, content: bytes, *, breaks: bool = False) -> None:
        self._content = content
        self._breaks = breaks

    def __iter__(self) -> Iterator[bytes]:
        yield self._content
        if self._breaks:
            raise httpx2.ReadError("cut off")


def test_a_download_continues_after_a_break_and_is_verified(
    tmp_path: Path, no_pause: list[float]
) -> None:
    headers = {
        "ETag": '"1"',
        "X-Hasat-Cursor": "c",
        "X-Hasat-Count": "1",
        "X-Hasat-Digest": "d",
        "X-Hasat-Epoch": "e",
        "X-Hasat-Sha256": hashlib.sha256(b"whole").hexdigest(),
    }
    first = httpx2.Response(200, headers=headers, stream=Body(b"who", breaks=True))
    rest = httpx2.Response(206, headers=headers, stream=Body(b"le"))
    transport, requests = responding(first, rest)
    archive = Client("http://hasat.example", transport=transport).archive("toys", tmp_path)
    assert archive.path == tmp_path / "toys.parquet"
    assert archive.path.read_bytes() == b"whole"
    assert (requests[1].headers["Range"], requests[1].headers["If-Range"]) == ("bytes=3-", '"1"')

    transport, _ = responding(httpx2.Response(200, headers=headers, stream=Body(b"other")))
    with pytest.raises(InvalidResponseError, match="SHA-256"):
        Client("http://hasat.example", transport=transport).archive("toys", tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["toys.parquet"]


LIBRARIES = {
    "to_pandas": "pandas",
    "to_polars": "polars",
    "to_duckdb": "duckdb",
    "to_geodataframe": "geopandas",
}


@pytest.mark.parametrize("method", LIBRARIES)
def test_an_archive_becomes_a_table(tmp_path: Path, method: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    feature = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [29, 41]},
        "properties": {"adaNo": "1"},
    }
    columns = {"key": ["1/2", "1/3"], "body": [json.dumps(feature)] * 2}
    pq.write_table(pa.table(columns), tmp_path / "plots.parquet")
    archive = Archive(tmp_path / "plots.parquet", "parquet", "plots", "c", 2, "d", "e", None)
    if find_spec(LIBRARIES[method]) is None:
        with pytest.raises(MissingLibraryError, match="pip install"):
            getattr(archive, method)()
        pytest.skip(f"{LIBRARIES[method]} is not installed")
    table = getattr(archive, method)()
    assert len(table) == 2
    assert next(iter(table.columns)) == "key"


def test_an_archive_that_is_no_parquet_file_is_no_table(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "plots.ndjson.gz", "ndjson", "plots", "c", 2, "d", "e", None)
    with pytest.raises(ClientError, match=r'pip install|download it as "parquet"'):
        archive.to_polars()


def test_the_client_needs_nothing_of_the_server() -> None:
    package = Path(inspect.getfile(Client)).parent
    named = [
        f"{module.name}: {line}"
        for module in package.glob("*.py")
        for line in module.read_text("utf-8").splitlines()
        if line.startswith(("import hasat", "from hasat"))
    ]
    assert named == []
