"""Getting a list: from a file as it is, or from its address: conditional, resumed, tried again."""

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
from hasat.store.disk import room_for

_PAUSES = (2.0, 4.0, 8.0)
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_SILENCE_SECONDS = 60.0

log = structlog.get_logger(__name__)


class _PassingError(Exception):
    """It may go better next time."""


async def obtain(
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
    """The list as a local file; a download is kept in `folder` and only renewed when it changed.

    Without `trusted`, `source` comes from a remote caller: then it is no file, and is fetched from
    public addresses and `private_networks` only. Redirects to another host always are.
    """
    if "://" not in source or source.startswith("file://"):
        if not trusted:
            raise UsageError(
                msg("The {name} list of a queued run must have an http(s) address.", name=name),
                remedy=msg("Files are read only by `hasat gib sync` on the command line."),
            )
        return _local(source, name)
    if not source.lower().startswith(("http://", "https://")):
        raise UsageError(
            msg(
                "The {name} list cannot be fetched from {source}: only http(s) is spoken here.",
                name=name,
                source=source,
            ),
            remedy=msg(
                "Name an http(s) address, or fetch the list by other means and name the file."
            ),
        )
    download = _Download(source, name, folder / f"{name.lower()}.zip")
    try:
        with room_for(f"the {name} list", folder):
            folder.mkdir(parents=True, exist_ok=True)
        async with (
            asyncio.timeout(timeout_seconds),
            httpx2.AsyncClient(
                transport=transport
                or CheckedTransport(
                    private_networks, trusted=httpx2.URL(source).host if trusted else None
                ),
                follow_redirects=True,
                timeout=httpx2.Timeout(_SILENCE_SECONDS, connect=15.0),
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
                "What did arrive is kept and gone on with next time; "
                "gib.download_timeout allows for more."
            ),
        ) from error


def forget(name: str, folder: Path) -> None:
    """Fetch a list anew next time, whatever its marks say: what came under them is damaged."""
    (folder / f"{name.lower()}.json").unlink(missing_ok=True)


class _Download:
    def __init__(self, url: str, name: str, target: Path) -> None:
        self._url = url
        self._name = name
        self._target = target
        self._part = target.with_suffix(".part")
        self._notes = target.with_suffix(".json")
        self._part_notes = target.with_suffix(".part.json")

    async def run(self, client: httpx2.AsyncClient, pauses: tuple[float, ...]) -> Path:
        for pause in (*pauses, None):
            try:
                return await self._once(client)
            except (httpx2.TransportError, _PassingError) as error:
                if pause is None:
                    why = str(error) or type(error).__name__
                    raise UnavailableError(
                        msg(
                            "The {name} list could not be fetched: {why}.", name=self._name, why=why
                        ),
                        remedy=msg("Try again later; the address is {url}.", url=self._url),
                    ) from error
                log.warning("a download failed; trying again", list=self._name, error=str(error))
                await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _once(self, client: httpx2.AsyncClient) -> Path:
        begun = self._read(self._part_notes)
        offset = self._part.stat().st_size if begun and self._part.exists() else 0
        async with client.stream("GET", self._url, headers=self._asking(begun, offset)) as answer:
            if answer.status_code == 304:
                return self._target
            if answer.status_code == 416:
                self._forget_part()
                raise _PassingError("the list changed while it was being fetched")
            if answer.status_code in _PASSING:
                raise _PassingError(f"the server answered {answer.status_code}")
            if answer.status_code not in (200, 206):
                raise UnavailableError(
                    msg(
                        "The server of the {name} list answered {status_code}.",
                        name=self._name,
                        status_code=answer.status_code,
                    ),
                    remedy=msg("Check the address {url}.", url=self._url),
                )
            resumed = answer.status_code == 206
            notes = begun if resumed and begun else self._notes_of(answer)
            with self._room():
                self._part_notes.write_text(json.dumps(notes), "utf-8")
            with self._room(), self._part.open("ab" if resumed else "wb") as file:
                async for block in answer.aiter_raw():
                    file.write(block)
        expected = notes.get("length")
        if expected is not None and self._part.stat().st_size != int(expected):
            raise _PassingError(f"{self._part.stat().st_size} of {expected} bytes arrived")
        self._part.replace(self._target)
        self._part_notes.replace(self._notes)
        return self._target

    def _room(self) -> AbstractContextManager[None]:
        return room_for(f"the {self._name} list", self._target.parent)

    def _asking(self, begun: dict[str, str] | None, offset: int) -> dict[str, str]:
        """Go on where it broke off; else only if it is not what we have."""
        if begun and offset and (mark := begun.get("etag") or begun.get("modified")):
            return {"Range": f"bytes={offset}-", "If-Range": mark}
        have = self._read(self._notes) if self._target.exists() else None
        asking = {}
        if have and have.get("etag"):
            asking["If-None-Match"] = have["etag"]
        if have and have.get("modified"):
            asking["If-Modified-Since"] = have["modified"]
        return asking

    def _notes_of(self, answer: httpx2.Response) -> dict[str, str]:
        found = {
            "url": self._url,
            "etag": answer.headers.get("etag"),
            "modified": answer.headers.get("last-modified"),
            "length": answer.headers.get("content-length"),
        }
        return {key: value for key, value in found.items() if value}

    def _read(self, path: Path) -> dict[str, str] | None:
        """What is noted of a file, if it is of the same address."""
        try:
            notes: dict[str, str] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return notes if notes.get("url") == self._url else None

    def _forget_part(self) -> None:
        for path in (self._part, self._part_notes):
            with suppress(FileNotFoundError):
                path.unlink()


def _local(source: str, name: str) -> Path:
    path = Path(unquote(urlsplit(source).path) if source.startswith("file://") else source)
    if not path.is_file():
        raise UsageError(
            msg("There is no file {path} for the {name} list.", path=path, name=name),
            remedy=msg("Name a ZIP or XML file, or an http(s) address."),
        )
    return path.absolute()
