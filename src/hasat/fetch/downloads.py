"""Downloads of complete lists: conditional, resumed and retried, each request with a grant.

A retry, a resumed download and every hop of a redirect are requests of their own: each takes a
grant and is in the ledger. The validators of a file (ETag, Last-Modified) are stored with it, so
that the next download is conditional; what arrived of an interrupted one is resumed by Range.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import httpx2
import structlog

from hasat.budget import Budget
from hasat.errors import UnavailableError, UsageError
from hasat.fetch.addresses import CheckedTransport
from hasat.fetch.outcomes import Outcome, RequestContext, retry_after
from hasat.messages import msg
from hasat.store.home import explaining_disk_full

DEFAULT_MAX_BYTES = 4 * 1024**3
DEFAULT_PAUSES = (2.0, 4.0, 8.0)
MAX_REDIRECTS = 10

_TRANSIENT_STATUS = frozenset({408, 500, 502, 503, 504})
_READ_TIMEOUT_SECONDS = 60.0
_GRANT_SECONDS = 300.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

log = structlog.get_logger(__name__)

Facts = Mapping[str, str]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Download:
    """A file to fetch: its address, where to store it, and its limits.

    `title` names it in errors, as the beginning of a sentence. Without `trusted`, the address comes
    from a remote caller and is fetched only from public addresses and `private_networks`; redirects
    to another host always are. `headers` are not sent to another host.
    """

    url: str
    target: Path
    title: str
    timeout_seconds: float = 600.0
    timeout_setting: str | None = None
    """The setting that allows more time, if there is one."""
    max_bytes: int = DEFAULT_MAX_BYTES
    trusted: bool = True
    private_networks: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class DownloadedFile:
    """A complete download; `facts` are the SHA-256 of its address, and its validators."""

    path: Path
    is_new: bool
    """Whether it was transferred now; False if the upstream reports that it is unchanged."""
    status: int
    facts: Facts


class _TransientError(Exception):
    """The attempt failed in a way that a retry may fix."""

    def __init__(
        self, reason: str, outcome: Outcome = Outcome.TRANSIENT, wait: float | None = None
    ):
        super().__init__(reason)
        self.outcome = outcome
        self.wait = wait


class _RejectedError(UnavailableError):
    """The upstream refused the request; a retry changes nothing."""

    def __init__(self, download: Download, status: int) -> None:
        super().__init__(
            msg(
                "{title} responded {status_code} instead of a file.",
                title=download.title,
                status_code=status,
            ),
            remedy=msg("Check the address {url}.", url=download.url),
        )
        self.outcome = Outcome.UNAUTHORISED if status in (401, 403) else Outcome.BAD_REQUEST


class Downloader:
    """Downloads files from one upstream within its budget."""

    def __init__(
        self,
        budget: Budget,
        context: RequestContext,
        *,
        pauses: Sequence[float] = DEFAULT_PAUSES,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._budget = budget
        self._context = context
        self._pauses = tuple(pauses)
        self._transport = transport
        self._sleep = sleep
        self.sent = 0
        """The number of requests sent: retries, resumed downloads and redirects included."""

    async def fetch(self, download: Download) -> DownloadedFile:
        """Return the file; the stored one if the upstream reports that it is unchanged."""
        if not download.url.lower().startswith(("http://", "https://")):
            raise UsageError(
                msg(
                    "{title} cannot be fetched from {source}: only http(s) is supported.",
                    title=download.title,
                    source=download.url,
                ),
                remedy=msg("Give an http(s) address."),
            )
        folder = download.target.parent
        with explaining_disk_full(download.title, folder):
            folder.mkdir(parents=True, exist_ok=True)
        trusted = httpx2.URL(download.url).host if download.trusted else None
        try:
            async with (
                asyncio.timeout(download.timeout_seconds) as limit,
                httpx2.AsyncClient(
                    transport=self._transport
                    or CheckedTransport(download.private_networks, trusted=trusted),
                    timeout=httpx2.Timeout(_READ_TIMEOUT_SECONDS, connect=15.0),
                    headers={"Accept-Encoding": "identity"},
                ) as client,
            ):
                return await self._with_retries(client, download, limit)
        except TimeoutError as error:
            raise _too_late(download) from error

    async def _with_retries(
        self, client: httpx2.AsyncClient, download: Download, limit: asyncio.Timeout
    ) -> DownloadedFile:
        for pause in (*self._pauses, None):
            try:
                return await self._attempt(client, download, limit)
            except (httpx2.TransportError, _TransientError) as error:
                why = str(error) or type(error).__name__
                if pause is None:
                    raise UnavailableError(
                        msg("{title} could not be fetched: {why}.", title=download.title, why=why),
                        remedy=msg("Try again later; the address is {url}.", url=download.url),
                    ) from error
                log.warning("download.retried", url=download.url, error=why)
                asked = (isinstance(error, _TransientError) and error.wait) or 0.0
                await self._sleep(max(pause, asked))
        raise AssertionError("the last pause is None")

    async def _attempt(
        self, client: httpx2.AsyncClient, download: Download, limit: asyncio.Timeout
    ) -> DownloadedFile:
        file = _PartialFile(download)
        url = httpx2.URL(download.url)
        request = client.build_request("GET", url, headers=file.request_headers())
        own_headers = {**download.headers}
        for _ in range(MAX_REDIRECTS + 1):
            if request.url.host == url.host and request.url.scheme == url.scheme:
                request.headers.update(own_headers)
            else:
                for name in own_headers:
                    request.headers.pop(name, None)
            async with self._granted(client, request, limit) as response:
                if response.next_request is None:
                    return await file.receive(response)
                request = response.next_request
        raise _TransientError(
            msg("more than {max_redirects} redirects", max_redirects=MAX_REDIRECTS), Outcome.BROKEN
        )

    @asynccontextmanager
    async def _granted(
        self, client: httpx2.AsyncClient, request: httpx2.Request, limit: asyncio.Timeout
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request with a grant; its outcome is that of the block."""
        clock = asyncio.get_running_loop().time
        remaining = (limit.when() or clock()) - clock()
        # The time limit is the upstream's; the wait for a grant does not count.
        limit.reschedule(None)
        grant = await self._budget.acquire(
            self._context.lane,
            job=self._context.job,
            endpoint=request.url.path,
            run=self._context.run,
            timeout=_GRANT_SECONDS,
        )
        limit.reschedule(clock() + remaining)
        self.sent += 1
        started = time.monotonic()
        outcome: str = "cancelled"
        wait: float | None = None
        try:
            response = await client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
            outcome = Outcome.OK
        except _TransientError as error:
            outcome, wait = error.outcome, error.wait
            raise
        except _RejectedError as error:
            outcome = error.outcome
            raise
        except httpx2.TransportError:
            outcome = Outcome.TRANSIENT
            raise
        except Exception:
            outcome = Outcome.BROKEN
            raise
        finally:
            # Shielded, so that a cancelled request is in the ledger too.
            await asyncio.shield(
                grant.settle(str(outcome), latency=time.monotonic() - started, retry_after=wait)
            )


def invalidate_download(target: Path) -> None:
    """Have the next download fetch the file again, because the stored one is damaged."""
    _facts_file(target).unlink(missing_ok=True)


def _facts_file(target: Path) -> Path:
    return target.with_suffix(".json")


class _PartialFile:
    """The files of one download: what arrived, what is complete, and the validators of both."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self._target = download.target
        self._part = download.target.with_suffix(".part")
        self._facts = _facts_file(download.target)
        self._part_facts = download.target.with_suffix(".part.json")
        self._started = self._read(self._part_facts)
        self._offset = self._part.stat().st_size if self._started and self._part.exists() else 0
        self._resumes = False
        self._have: Facts | None = None

    def request_headers(self) -> dict[str, str]:
        """Return headers that resume the download, or ask for the file only if it changed."""
        started = self._started or {}
        validator = started.get("etag") or started.get("modified")
        if self._offset and validator:
            self._resumes = True
            return {"Range": f"bytes={self._offset}-", "If-Range": validator}
        self._have = self._read(self._facts) if self._target.exists() else None
        headers = {}
        if self._have and self._have.get("etag"):
            headers["If-None-Match"] = self._have["etag"]
        if self._have and self._have.get("modified"):
            headers["If-Modified-Since"] = self._have["modified"]
        return headers

    async def receive(self, response: httpx2.Response) -> DownloadedFile:
        """Store the response; raise unless the file is complete afterwards."""
        status = response.status_code
        if status == 304 and self._have is not None:
            return DownloadedFile(self._target, False, status, self._have)
        wait = retry_after(response.headers)
        if status == 429:
            raise _TransientError(msg("the server responded 429"), Outcome.MINUTE_LIMITED, wait)
        if status == 416 or (status == 206 and not self._continues(response)):
            self._delete_part()
            raise _TransientError(msg("the file changed during the download"))
        if status in _TRANSIENT_STATUS:
            raise _TransientError(msg("the server responded {status}", status=status), wait=wait)
        if status not in (200, 206):
            raise _RejectedError(self._download, status)
        facts = self._started if status == 206 and self._started else self._facts_of(response)
        with self._reporting_full_disk():
            self._part_facts.write_text(json.dumps(facts), "utf-8")
        expected = facts.get("length")
        expected_bytes = int(expected) if expected and expected.isdigit() else None
        await self._append(response, expected_bytes, resumed=status == 206)
        size = self._part.stat().st_size
        if expected_bytes is not None and size != expected_bytes:
            if size > expected_bytes:
                self._delete_part()
            raise _TransientError(
                msg("{size} of {expected} bytes arrived", size=size, expected=expected)
            )
        self._part.replace(self._target)
        self._part_facts.replace(self._facts)
        return DownloadedFile(self._target, True, status, facts)

    async def _append(
        self, response: httpx2.Response, expected: int | None, *, resumed: bool
    ) -> None:
        size = self._offset if resumed else 0
        self._check_size(max(size, expected or 0))
        with self._reporting_full_disk(), self._part.open("ab" if resumed else "wb") as file:
            async for block in response.aiter_raw():
                size += len(block)
                self._check_size(size)
                file.write(block)
                # What has arrived survives the end of the process.
                file.flush()

    def _check_size(self, size: int) -> None:
        if size <= self._download.max_bytes:
            return
        self._delete_part()
        raise UnavailableError(
            msg(
                "{title} is larger than {max_bytes:,} bytes.",
                title=self._download.title,
                max_bytes=self._download.max_bytes,
            ),
            remedy=msg("Check the address {url}.", url=self._download.url),
        )

    def _continues(self, response: httpx2.Response) -> bool:
        """Return whether a partial response continues what arrived: same file, right offset.

        An upstream may resume another file, or another part of it, in spite of If-Range.
        """
        found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", "").strip())
        if not (self._resumes and self._started and found and int(found[1]) == self._offset):
            return False
        etag, length = response.headers.get("etag"), self._started.get("length")
        same_tag = not etag or self._started.get("etag") in (None, etag)
        return same_tag and (found[2] == "*" or length is None or found[2] == length)

    def _facts_of(self, response: httpx2.Response) -> Facts:
        found = {
            # An address may contain a key.
            "url": sha256(self._download.url.encode()).hexdigest(),
            "etag": response.headers.get("etag"),
            "modified": response.headers.get("last-modified"),
            "length": response.headers.get("content-length"),
        }
        return {key: value for key, value in found.items() if value}

    def _read(self, path: Path) -> Facts | None:
        """Return the stored facts of a file, if it came from the same address."""
        try:
            facts: dict[str, str] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        address = sha256(self._download.url.encode()).hexdigest()
        return facts if facts.get("url") == address else None

    def _reporting_full_disk(self) -> AbstractContextManager[None]:
        return explaining_disk_full(self._download.title, self._target.parent)

    def _delete_part(self) -> None:
        for path in (self._part, self._part_facts):
            with suppress(FileNotFoundError):
                path.unlink()


def _too_late(download: Download) -> UnavailableError:
    remedy = msg("The next run resumes the download.")
    if download.timeout_setting is not None:
        remedy = msg(
            "The next run resumes the download; increase {setting} to allow more time.",
            setting=download.timeout_setting,
        )
    return UnavailableError(
        msg(
            "{title} did not arrive within {timeout_seconds:.0f} seconds.",
            title=download.title,
            timeout_seconds=download.timeout_seconds,
        ),
        remedy=remedy,
    )
