"""Storage in a bucket of an S3-compatible store."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from hasat.errors import UnavailableError
from hasat.feed.archive.storage import MissingError
from hasat.messages import msg
from hasat.settings.platform_sections import Archives

if TYPE_CHECKING:
    from obstore import BytesStream
    from obstore.store import ClientConfig, RetryConfig, S3Config

_PART = 8 << 20
_PARTS_AT_ONCE = 4
# A missing file is a FileNotFoundError; the library has its own errors for the rest.
_FAILURES = (BaseError, OSError)
_RETRY: "RetryConfig" = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_NO_LIMIT = timedelta(days=1)
_MIN_PIECE = 1 << 16
"""The bytes that must arrive within `archives.response_timeout` for a download to continue."""


class Bucket:
    """Storage that writes files on this machine and uploads them when they are complete.

    A large file is uploaded in parts, which become visible with the last one.
    """

    def __init__(self, archives: Archives, drafts: Path) -> None:
        assert archives.bucket_name is not None
        self.label = f"the bucket {archives.bucket_name}"
        self._drafts = drafts
        config: S3Config = {}
        self._seconds = archives.response_timeout.total_seconds()
        client: ClientConfig = {"connect_timeout": archives.response_timeout}
        if archives.region is not None:
            config["region"] = archives.region
        if archives.service_url is not None:
            config["endpoint"] = archives.service_url
            client["allow_http"] = archives.service_url.startswith("http:")
        if archives.access_key is not None and archives.secret_key is not None:
            config["access_key_id"] = archives.access_key.get_secret_value()
            config["secret_access_key"] = archives.secret_key.get_secret_value()
        self._store = S3Store(
            archives.bucket_name, config=config, client_options=client, retry_config=_RETRY
        )
        # The library limits a request as a whole, by default to 30 s. A download that makes
        # progress may take as long as its reader needs.
        client = {**client, "timeout": _NO_LIMIT}
        self._downloads = S3Store(
            archives.bucket_name, config=config, client_options=client, retry_config=_RETRY
        )

    def draft(self, path: str) -> Path:
        self._drafts.mkdir(parents=True, exist_ok=True)
        return self._draft(path)

    def _draft(self, path: str) -> Path:
        return self._drafts / f".{path.replace('/', '-')}.part"

    async def publish(self, path: str) -> None:
        draft = self.draft(path)
        try:
            await obstore.put_async(
                self._store, path, draft, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE
            )
        except _FAILURES as error:
            raise self._unavailable(error) from error
        draft.unlink()

    async def size(self, path: str) -> int | None:
        try:
            async with asyncio.timeout(self._seconds):
                return int((await obstore.head_async(self._store, path))["size"])
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def read(self, path: str, start: int, stop: int) -> AsyncIterator[bytes]:
        if start == stop:
            return
        try:
            async with asyncio.timeout(self._seconds):
                found = await obstore.get_async(
                    self._downloads, path, options={"range": (start, stop)}
                )
            pieces = found.stream(min_chunk_size=_MIN_PIECE)
            while (piece := await self._next(pieces)) is not None:
                yield piece
        except FileNotFoundError:
            raise MissingError(path, self.label) from None
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def remove(self, path: str) -> None:
        self._draft(path).unlink(missing_ok=True)
        try:
            async with asyncio.timeout(self._seconds):
                await obstore.delete_async(self._store, path)
        except FileNotFoundError:
            return
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def probe(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await obstore.list(self._store, chunk_size=1).__anext__()
        except StopAsyncIteration:
            return
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def _next(self, pieces: "BytesStream") -> bytes | None:
        """Return the next piece, None at the end; each has the full time-out."""
        async with asyncio.timeout(self._seconds):
            piece = await anext(pieces, None)
        return None if piece is None else bytes(piece)

    def _unavailable(self, error: Exception) -> UnavailableError:
        if isinstance(error, TimeoutError):
            return UnavailableError(
                msg(
                    "The archives in {label} cannot be reached: no response within {seconds:g} s.",
                    label=self.label,
                    seconds=self._seconds,
                ),
                remedy=msg("Check that the store is up; archives.response_timeout is the limit."),
            )
        # The lines after the first are a dump of the response.
        reason = str(error).strip().splitlines()[0]
        return UnavailableError(
            msg(
                "The archives in {label} cannot be reached: {reason}",
                label=self.label,
                reason=reason,
            ),
            remedy=msg("Check the settings archives.* and that the store is up."),
        )
