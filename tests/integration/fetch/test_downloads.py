"""Downloads of complete lists: every request has a grant, and no half or mixed file is returned."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hasat.budget import Budget, Upstream
from hasat.errors import OutOfQuotaError, UnavailableError
from hasat.fetch.downloads import Download, Downloader, invalidate_download
from hasat.store import Store
from support.endpoint_pool import CONTEXT
from support.faulty_server import FaultyServer, Handler, ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

LIST = bytes(range(256)) * 40
NEWER = LIST[::-1] + b"!"


class Publisher:
    """A server with one list, its ETag, ranges and conditional requests."""

    def __init__(self, content: bytes = LIST, tag: str = '"one"') -> None:
        self.content = content
        self.tag = tag

    async def __call__(self, request: ReceivedRequest, reply: Reply) -> None:
        if request.headers.get("if-none-match") == self.tag:
            await reply.send(304, headers={"etag": self.tag})
            return
        span = request.headers.get("range")
        if span and request.headers.get("if-range") == self.tag:
            start = int(span.removeprefix("bytes=").removesuffix("-"))
            total = len(self.content)
            headers = {"etag": self.tag, "content-range": f"bytes {start}-{total - 1}/{total}"}
            await reply.send(206, self.content[start:], headers)
            return
        await reply.send(200, self.content, {"etag": self.tag})


async def cut(reply: Reply, content: bytes, sent: int, tag: str = '"one"') -> None:
    """Send the beginning of a list and hang up."""
    await reply.head(200, {"content-length": str(len(content)), "etag": tag})
    await reply.write(content[:sent])
    reply.writer.close()


class Case:
    def __init__(self, server: FaultyServer, budget: Budget, folder: Path) -> None:
        self.server = server
        self._budget = budget
        self.target = folder / "list.bin"
        self.pauses: list[float] = []

    async def fetch(self, path: str = "/list", max_bytes: int = 10**6, retries: int = 3) -> bool:
        """Download and return whether the file is new."""
        downloader = Downloader(self._budget, CONTEXT, pauses=(0.5,) * retries, sleep=self._pause)
        url = f"{self.server.url}{path}"
        done = await downloader.fetch(
            Download(url, self.target, "The list", timeout_seconds=30, max_bytes=max_bytes)
        )
        return done.is_new

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def publishing(
    store: Store, folder: Path, handler: Handler, day_limit: int = 500
) -> AsyncIterator[Case]:
    async def no_sleep(_: float) -> None:
        await asyncio.sleep(0)

    limits = Upstream("lists", day_limit=day_limit, minute_limit=6000, opening_seconds=0)
    async with faulty_server(handler) as server, Budget(store, limits, sleep=no_sleep) as budget:
        yield Case(server, budget, folder)


async def ledger_addresses(store: Store) -> list[str]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT endpoint FROM budget.request")
        return [endpoint for (endpoint,) in await cursor.fetchall()]


async def ledger(store: Store) -> list[str]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT outcome FROM budget.request ORDER BY id")
        return [outcome for (outcome,) in await cursor.fetchall()]


async def test_an_unchanged_list_is_not_transferred_again(store: Store, tmp_path: Path) -> None:
    publisher = Publisher()
    async with publishing(store, tmp_path, publisher) as case:
        assert await case.fetch()
        assert not await case.fetch()
        publisher.content, publisher.tag = NEWER, '"two"'
        assert await case.fetch()
        assert case.target.read_bytes() == NEWER
    assert await ledger(store) == ["ok", "ok", "ok"]


async def test_a_key_in_the_address_is_not_stored(store: Store, tmp_path: Path) -> None:
    async with publishing(store, tmp_path, Publisher()) as case:
        assert await case.fetch("/list?token=s3cr3t")
        assert not await case.fetch("/list?token=s3cr3t")
        assert await case.fetch("/list?token=another"), "the list of another address"
    for file in tmp_path.rglob("*.json"):
        assert "s3cr3t" not in file.read_text("utf-8")
    assert "s3cr3t" not in str(await ledger_addresses(store))


async def test_a_cut_download_is_resumed_and_both_requests_are_in_the_ledger(
    store: Store, tmp_path: Path
) -> None:
    publisher = Publisher()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            await cut(reply, LIST, 4000)
        else:
            await publisher(request, reply)

    async with publishing(store, tmp_path, handler) as case:
        assert await case.fetch()
        assert case.server.received[1].headers["range"] == "bytes=4000-"
        assert case.target.read_bytes() == LIST
    assert await ledger(store) == ["transient", "ok"]


async def test_the_next_run_resumes_what_an_earlier_one_received(
    store: Store, tmp_path: Path
) -> None:
    publisher = Publisher()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            await cut(reply, LIST, 4000)
        else:
            await publisher(request, reply)

    async with publishing(store, tmp_path, handler) as case:
        with pytest.raises(UnavailableError, match="The list could not be fetched"):
            await case.fetch(retries=0)
        assert not case.target.exists()
        assert await case.fetch(retries=0)
        assert case.server.received[1].headers["range"] == "bytes=4000-"
        assert case.target.read_bytes() == LIST


@pytest.mark.parametrize(
    "headers",
    [
        {"content-range": f"bytes 100-{len(NEWER) - 1}/{len(NEWER)}", "etag": '"one"'},
        {"content-range": f"bytes 4000-{len(NEWER) - 1}/{len(NEWER)}", "etag": '"one"'},
        {"content-range": f"bytes 4000-{len(LIST) - 1}/{len(LIST)}", "etag": '"two"'},
        {"etag": '"one"'},
    ],
    ids=["other offset", "other length", "other tag", "no range"],
)
async def test_a_part_of_another_list_is_never_appended(
    store: Store, tmp_path: Path, headers: dict[str, str]
) -> None:
    newer = Publisher(NEWER, '"two"')

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            await cut(reply, LIST, 4000)
        elif request.number == 2:
            await reply.send(206, NEWER[4000:], headers)
        else:
            await newer(request, reply)

    async with publishing(store, tmp_path, handler) as case:
        assert await case.fetch()
        assert case.target.read_bytes() == NEWER
    assert await ledger(store) == ["transient", "transient", "ok"]


async def test_a_304_without_a_condition_is_not_taken_for_a_list(
    store: Store, tmp_path: Path
) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(304, headers={"etag": '"one"'})

    async with publishing(store, tmp_path, handler) as case:
        with pytest.raises(UnavailableError, match="responded 304"):
            await case.fetch()
        assert not case.target.exists()


async def test_a_damaged_list_is_fetched_again_whatever_its_tag(
    store: Store, tmp_path: Path
) -> None:
    async with publishing(store, tmp_path, Publisher()) as case:
        assert await case.fetch()
        invalidate_download(case.target)
        assert await case.fetch()
        assert "if-none-match" not in case.server.received[1].headers


async def test_errors_are_retried_each_with_a_grant(store: Store, tmp_path: Path) -> None:
    publisher = Publisher()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            await reply.send(500)
        elif request.number == 2:
            await reply.send(429, headers={"retry-after": "0"})
        elif request.number == 3:
            reply.reset()
        else:
            await publisher(request, reply)

    async with publishing(store, tmp_path, handler) as case:
        assert await case.fetch()
        assert len(case.server.received) == 4
    assert await ledger(store) == ["transient", "minute_limited", "transient", "ok"]


async def test_every_hop_of_a_redirect_has_a_grant(store: Store, tmp_path: Path) -> None:
    publisher = Publisher()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.path == "/old":
            await reply.send(302, headers={"location": "/list"})
        else:
            await publisher(request, reply)

    async with publishing(store, tmp_path, handler) as case:
        assert await case.fetch("/old")
        assert [one.path for one in case.server.received] == ["/old", "/list"]
    assert await ledger(store) == ["ok", "ok"]


async def test_a_redirect_to_itself_ends(store: Store, tmp_path: Path) -> None:
    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        await reply.send(302, headers={"location": "/list"})

    async with publishing(store, tmp_path, handler) as case:
        with pytest.raises(UnavailableError, match="redirects"):
            await case.fetch(retries=0)
        assert len(case.server.received) == len(await ledger(store))


async def test_nothing_is_sent_without_a_grant(store: Store, tmp_path: Path) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(500)

    async with publishing(store, tmp_path, handler, day_limit=2) as case:
        with pytest.raises(OutOfQuotaError):
            await case.fetch()
        assert len(case.server.received) == 2
    assert await ledger(store) == ["transient", "transient"]


@pytest.mark.parametrize("stated", [True, False])
async def test_a_list_beyond_the_size_limit_is_not_stored(
    store: Store, tmp_path: Path, *, stated: bool
) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        if stated:
            await reply.send(200, LIST)
        else:
            await reply.head(200, {"connection": "close"})
            await reply.write(LIST)
            reply.writer.close()

    async with publishing(store, tmp_path, handler) as case:
        with pytest.raises(UnavailableError, match="larger than 5,000 bytes"):
            await case.fetch(max_bytes=5000)
    assert not list(tmp_path.glob("list*"))
