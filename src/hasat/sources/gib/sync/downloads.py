"""Downloads of the lists: conditional, resumed and retried; local files are used in place."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2
import structlog

from hasat.errors import UnavailableError, UsageError
from hasat.fetch.addresses import CheckedTransport
from hasat.messages import msg
from hasat.store.home import explaining_disk_full

_PAUSES = (2.0, 4.0, 8.0)
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_READ_TIMEOUT_SECONDS = 60.0

log = structlog.get_logger(__name__)


class _TransientError(Exception):
    """The attempt failed in a way that a retry may fix."""


async def fetch_list(
    source: str,
    name: str,
    folder: Path,
    *,
    timeout_seconds: float,
    trusted: bool = True,
    private_networks: Sequence[str] = (),
    pauses: tuple[float, ...] = _PAUSES,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Path:
    """Return a list as a local file; a download is stored in `folder` and reused if unchanged.

    Without `trusted`, `source` comes from a remote caller: it must not be a file, and is fetched
    only from public addresses and `private_networks`. Redirects to another host always are.
    """
    if "://" not in source or source.startswith("file://"):
        if not trusted:
            raise UsageError(
                msg("The {name} list of a queued run must have an http(s) address.", name=name),
                remedy=msg("Only `hasat gib sync` on the command line reads files."),
            )
        return _local_file(source, name)
    if not source.lower().startswith(("http://", "https://")):
        raise UsageError(
            msg(
                "Cannot fetch the {name} list from {source}: only http(s) is supported.",
                name=name,
                source=source,
            ),
            remedy=msg(
                "Give an http(s) address, or fetch the list by other means and give the file."
            ),
        )
    download = _Download(source, name, folder / f"{name.lower()}.zip")
    try:
        with explaining_disk_full(f"the {name} list", folder):
            folder.mkdir(parents=True, exist_ok=True)
        async with (
            asyncio.timeout(timeout_seconds),
            httpx2.AsyncClient(
                transport=transport
                or CheckedTransport(
                    private_networks, trusted=httpx2.URL(source).host if trusted else None
                ),
                follow_redirects=True,
                timeout=httpx2.Timeout(_READ_TIMEOUT_SECONDS, connect=15.0),
                headers={"Accept-Encoding": "identity"},
            ) as client,
        ):
            return await download.run(client, pauses)
    except TimeoutError as error:
        raise UnavailableError(
            msg(
                "The {name} list did not arrive within {timeout_seconds:.0f} seconds.",
                name=name,
                timeout_seconds=timeout_seconds,
            ),
            remedy=msg(
                "The next run resumes the download; increase gib.download_timeout to allow "
                "more time."
            ),
        ) from error


def invalidate_download(name: str, folder: Path) -> None:
    """Have the next run fetch a list again, because the download with these headers is damaged."""
    (folder / f"{name.lower()}.json").unlink(missing_ok=True)


class _Download:
    def __init__(self, url: str, name: str, target: Path) -> None:
        self._url = url
        self._name = name
        self._target = target
        self._part = target.with_suffix(".part")
        self._facts = target.with_suffix(".json")
        self._part_facts = target.with_suffix(".part.json")

    async def run(self, client: httpx2.AsyncClient, pauses: tuple[float, ...]) -> Path:
        for pause in (*pauses, None):
            try:
                return await self._once(client)
            except (httpx2.TransportError, _TransientError) as error:
                if pause is None:
                    why = str(error) or type(error).__name__
                    raise UnavailableError(
                        msg(
                            "The {name} list could not be fetched: {why}.", name=self._name, why=why
                        ),
                        remedy=msg("Try again later; the address is {url}.", url=self._url),
                    ) from error
                log.warning("download.retried", list=self._name, error=str(error))
                await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _once(self, client: httpx2.AsyncClient) -> Path:
        started = self._read(self._part_facts)
        offset = self._part.stat().st_size if started and self._part.exists() else 0
        async with client.stream(
            "GET", self._url, headers=self._request_headers(started, offset)
        ) as response:
            if response.status_code == 304:
                return self._target
            if response.status_code == 416:
                self._delete_part()
                raise _TransientError("the list changed during the download")
            if response.status_code in _TRANSIENT_STATUS:
                raise _TransientError(f"the server responded {response.status_code}")
            if response.status_code not in (200, 206):
                raise UnavailableError(
                    msg(
                        "The server of the {name} list responded {status_code}.",
                        name=self._name,
                        status_code=response.status_code,
                    ),
                    remedy=msg("Check the address {url}.", url=self._url),
                )
            resumed = response.status_code == 206
            facts = started if resumed and started else self._facts_of(response)
            with self._reporting_full_disk():
                self._part_facts.write_text(json.dumps(facts), "utf-8")
            with self._reporting_full_disk(), self._part.open("ab" if resumed else "wb") as file:
                async for block in response.aiter_raw():
                    file.write(block)
        expected = facts.get("length")
        if expected is not None and self._part.stat().st_size != int(expected):
            raise _TransientError(f"{self._part.stat().st_size} of {expected} bytes arrived")
        self._part.replace(self._target)
        self._part_facts.replace(self._facts)
        return self._target

    def _reporting_full_disk(self) -> AbstractContextManager[None]:
        return explaining_disk_full(f"the {self._name} list", self._target.parent)

    def _request_headers(self, started: dict[str, str] | None, offset: int) -> dict[str, str]:
        """Return headers that resume the download, or ask for the list only if it changed."""
        if started and offset and (validator := started.get("etag") or started.get("modified")):
            return {"Range": f"bytes={offset}-", "If-Range": validator}
        have = self._read(self._facts) if self._target.exists() else None
        headers = {}
        if have and have.get("etag"):
            headers["If-None-Match"] = have["etag"]
        if have and have.get("modified"):
            headers["If-Modified-Since"] = have["modified"]
        return headers

    def _facts_of(self, response: httpx2.Response) -> dict[str, str]:
        found = {
            "url": self._url,
            "etag": response.headers.get("etag"),
            "modified": response.headers.get("last-modified"),
            "length": response.headers.get("content-length"),
        }
        return {key: value for key, value in found.items() if value}

    def _read(self, path: Path) -> dict[str, str] | None:
        """Return the stored facts of a file, if it came from the same address."""
        try:
            facts: dict[str, str] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return facts if facts.get("url") == self._url else None

    def _delete_part(self) -> None:
        for path in (self._part, self._part_facts):
            with suppress(FileNotFoundError):
                path.unlink()


def _local_file(source: str, name: str) -> Path:
    path = Path(unquote(urlsplit(source).path) if source.startswith("file://") else source)
    if not path.is_file():
        raise UsageError(
            msg("The file {path} for the {name} list does not exist.", path=path, name=name),
            remedy=msg("Give a ZIP or XML file, or an http(s) address."),
        )
    return path.absolute()
