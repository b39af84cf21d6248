"""The synchronous and the asynchronous client; both have the same methods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from . import calls
from .archives import Archive, Download, Format
from .calls import Call, Value
from .errors import NotReachableError, UnavailableError
from .models import (
    ArchiveInfo,
    Change,
    ChangePage,
    Check,
    CheckList,
    Digest,
    Record,
    RecordPage,
)

T = TypeVar("T")

_PAGE = 1_000
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0


class _Options:
    """What both clients are made from."""

    def __init__(
        self,
        address: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 2,
        language: str | None = None,
        transport: Any = None,
    ) -> None:
        """Talk to the server at `address`; a request that finds it unavailable is repeated.

        `language` ("en" or "tr") is that of the texts in errors.
        """
        headers = {"Accept": "application/json, application/problem+json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if language is not None:
            headers["Accept-Language"] = language
        self._timeout = timeout
        self._retries = retries
        self._http_options: dict[str, Any] = {
            "base_url": address.rstrip("/"),
            "headers": headers,
            "timeout": timeout,
            "transport": transport,
        }

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.query),
            "json": call.body,
            "timeout": self._timeout + call.seconds,
        }

    def _pause(self, attempt: int, error: Exception) -> float:
        """Return the seconds until the next attempt; raise the error if there is none."""
        if attempt >= self._retries:
            raise error
        after: float = error.retry_after if isinstance(error, UnavailableError) else 0.0
        own: float = _FIRST_PAUSE_SECONDS * 2**attempt
        return min(max(after, own), _MAX_PAUSE_SECONDS)


class Client(_Options):
    """A synchronous client of one Hasat server."""

    def __init__(self, address: str, key: str | None = None, **options: Any) -> None:
        super().__init__(address, key, **options)
        self._http = httpx2.Client(**self._http_options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def lookup(self, dataset: str, key: str, *, as_of: datetime | None = None) -> Record | None:
        """Return a record, None if there is none; with `as_of`, as it was at that time."""
        return self._send(calls.lookup(dataset, key, as_of))

    def history(self, dataset: str, key: str) -> Sequence[Any]:
        """Return every change of a record, oldest first, with the body before and after it."""
        return self._send(calls.history(dataset, key))

    def page(
        self,
        dataset: str,
        *,
        after: str | None = None,
        sort: str | None = None,
        limit: int = 100,
        **filters: Value,
    ) -> RecordPage:
        """Return one page of a list; filters are columns, such as `season=2026`.

        Write comparisons as `page("rates", **{"day.gte": "2026-01-01"})`.
        """
        return self._send(calls.page(dataset, filters, after, sort, limit))

    def list(
        self, dataset: str, *, sort: str | None = None, limit: int = _PAGE, **filters: Value
    ) -> Iterator[Record]:
        """Yield all records of a list, which is read in pages of `limit`."""
        after: str | None = None
        while True:
            found = self.page(dataset, after=after, sort=sort, limit=limit, **filters)
            yield from found.records
            if found.next is None:
                return
            after = found.next

    def check(self, identifier: str) -> Check:
        """Return whether to send a taxpayer an e-Fatura or an e-Arşiv invoice, and where to."""
        return self._send(calls.check(identifier))

    def check_many(self, identifiers: Iterable[str]) -> CheckList:
        """Check up to 5,000 identifiers in one snapshot."""
        return self._send(calls.check_many(identifiers))

    def change_page(
        self,
        dataset: str,
        after: str | None = None,
        *,
        only: Iterable[str] | None = None,
        limit: int = _PAGE,
        wait: float = 0.0,
        before: bool = False,
    ) -> ChangePage:
        """Return the changes after a cursor; without one, from the oldest that is stored.

        `wait` (up to 60 seconds) waits for a change if there is none, `only` names the records to
        watch, and `before` adds the bodies before the changes.
        """
        return self._send(calls.changes(dataset, after, only, limit, wait, before))

    def changes(
        self, dataset: str, after: str | None = None, *, before: bool = False
    ) -> Iterator[Change]:
        """Yield all changes after a cursor up to the newest."""
        while True:
            found = self.change_page(dataset, after, before=before)
            yield from found.changes
            if found.up_to_date:
                return
            after = found.next

    def follow(
        self,
        dataset: str,
        after: str | None = None,
        *,
        only: Iterable[str] | None = None,
        wait: float = 30.0,
        before: bool = False,
    ) -> Iterator[ChangePage]:
        """Yield pages of changes without end, each as soon as it is committed.

        Store `next` of a page together with what you made of it, and continue from there.
        """
        watched = None if only is None else [*only]
        while True:
            found = self.change_page(dataset, after, only=watched, wait=wait, before=before)
            after = found.next
            if found.changes:
                yield found

    def digest(self, dataset: str) -> Digest:
        """Return the state digest of a dataset, to compare a copy with."""
        return self._send(calls.digest(dataset))

    def archives(self, dataset: str) -> Sequence[ArchiveInfo]:
        """Return the archives that the server has, newest first."""
        return self._send(calls.archives(dataset))

    def archive(
        self, dataset: str, folder: str | Path = ".", *, form: Format = "parquet"
    ) -> Archive:
        """Download the newest archive into a folder, continue after a break, and verify it."""
        download = Download(dataset, form, Path(folder))
        attempt = 0
        while True:
            try:
                return self._download(download)
            except (NotReachableError, UnavailableError) as error:
                time.sleep(self._pause(attempt, error))
                attempt += 1

    def _download(self, download: Download) -> Archive:
        path, query = calls.archive_path(download.dataset), {"format": download.form}
        try:
            with self._http.stream(
                "GET", path, params=query, headers=dict(download.headers())
            ) as response:
                if response.status_code not in (200, 206):
                    calls.raise_problem(response, _document(response.read()))
                with download.begin(response) as file:
                    for piece in response.iter_raw():
                        file.write(piece)
        except httpx2.RequestError as error:
            raise _not_reachable(self._http.base_url, error) from error
        return download.finish(response)

    def _send(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            try:
                try:
                    response = self._http.request(**self._request(call))
                except httpx2.RequestError as error:
                    raise _not_reachable(self._http.base_url, error) from error
                return calls.read_response(call, response)
            except (NotReachableError, UnavailableError) as error:
                time.sleep(self._pause(attempt, error))
                attempt += 1


class AsyncClient(_Options):
    """An asynchronous client of one Hasat server."""

    def __init__(self, address: str, key: str | None = None, **options: Any) -> None:
        super().__init__(address, key, **options)
        self._http = httpx2.AsyncClient(**self._http_options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def lookup(
        self, dataset: str, key: str, *, as_of: datetime | None = None
    ) -> Record | None:
        """Return a record, None if there is none; with `as_of`, as it was at that time."""
        return await self._send(calls.lookup(dataset, key, as_of))

    async def history(self, dataset: str, key: str) -> Sequence[Any]:
        """Return every change of a record, oldest first, with the body before and after it."""
        return await self._send(calls.history(dataset, key))

    async def page(
        self,
        dataset: str,
        *,
        after: str | None = None,
        sort: str | None = None,
        limit: int = 100,
        **filters: Value,
    ) -> RecordPage:
        """Return one page of a list; filters are columns, such as `season=2026`."""
        return await self._send(calls.page(dataset, filters, after, sort, limit))

    async def list(
        self, dataset: str, *, sort: str | None = None, limit: int = _PAGE, **filters: Value
    ) -> AsyncIterator[Record]:
        """Yield all records of a list, which is read in pages of `limit`."""
        after: str | None = None
        while True:
            found = await self.page(dataset, after=after, sort=sort, limit=limit, **filters)
            for record in found.records:
                yield record
            if found.next is None:
                return
            after = found.next

    async def check(self, identifier: str) -> Check:
        """Return whether to send a taxpayer an e-Fatura or an e-Arşiv invoice, and where to."""
        return await self._send(calls.check(identifier))

    async def check_many(self, identifiers: Iterable[str]) -> CheckList:
        """Check up to 5,000 identifiers in one snapshot."""
        return await self._send(calls.check_many(identifiers))

    async def change_page(
        self,
        dataset: str,
        after: str | None = None,
        *,
        only: Iterable[str] | None = None,
        limit: int = _PAGE,
        wait: float = 0.0,
        before: bool = False,
    ) -> ChangePage:
        """Return the changes after a cursor; without one, from the oldest that is stored."""
        return await self._send(calls.changes(dataset, after, only, limit, wait, before))

    async def changes(
        self, dataset: str, after: str | None = None, *, before: bool = False
    ) -> AsyncIterator[Change]:
        """Yield all changes after a cursor up to the newest."""
        while True:
            found = await self.change_page(dataset, after, before=before)
            for change in found.changes:
                yield change
            if found.up_to_date:
                return
            after = found.next

    async def follow(
        self,
        dataset: str,
        after: str | None = None,
        *,
        only: Iterable[str] | None = None,
        wait: float = 30.0,
        before: bool = False,
    ) -> AsyncIterator[ChangePage]:
        """Yield pages of changes without end, each as soon as it is committed."""
        watched = None if only is None else [*only]
        while True:
            found = await self.change_page(dataset, after, only=watched, wait=wait, before=before)
            after = found.next
            if found.changes:
                yield found

    async def digest(self, dataset: str) -> Digest:
        """Return the state digest of a dataset, to compare a copy with."""
        return await self._send(calls.digest(dataset))

    async def archives(self, dataset: str) -> Sequence[ArchiveInfo]:
        """Return the archives that the server has, newest first."""
        return await self._send(calls.archives(dataset))

    async def archive(
        self, dataset: str, folder: str | Path = ".", *, form: Format = "parquet"
    ) -> Archive:
        """Download the newest archive into a folder, continue after a break, and verify it."""
        download = Download(dataset, form, Path(folder))
        attempt = 0
        while True:
            try:
                return await self._download(download)
            except (NotReachableError, UnavailableError) as error:
                await asyncio.sleep(self._pause(attempt, error))
                attempt += 1

    async def _download(self, download: Download) -> Archive:
        path, query = calls.archive_path(download.dataset), {"format": download.form}
        try:
            async with self._http.stream(
                "GET", path, params=query, headers=dict(download.headers())
            ) as response:
                if response.status_code not in (200, 206):
                    calls.raise_problem(response, _document(await response.aread()))
                with download.begin(response) as file:
                    async for piece in response.aiter_raw():
                        file.write(piece)
        except httpx2.RequestError as error:
            raise _not_reachable(self._http.base_url, error) from error
        return await asyncio.to_thread(download.finish, response)

    async def _send(self, call: Call[T]) -> T:
        attempt = 0
        while True:
            try:
                try:
                    response = await self._http.request(**self._request(call))
                except httpx2.RequestError as error:
                    raise _not_reachable(self._http.base_url, error) from error
                return calls.read_response(call, response)
            except (NotReachableError, UnavailableError) as error:
                await asyncio.sleep(self._pause(attempt, error))
                attempt += 1


def _document(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _not_reachable(address: object, error: Exception) -> NotReachableError:
    return NotReachableError(f"Cannot reach {address}: {str(error) or type(error).__name__}.")
