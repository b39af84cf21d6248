"""Archives, versions and deltas of a dataset."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from hasat.api.problems import problem_response
from hasat.clock import local_time
from hasat.errors import NotFoundError, UnavailableError, UsageError
from hasat.feed.archive import Archive, Storage
from hasat.feed.archive.catalog import (
    ArchivePendingError,
    NoArchiveError,
    find_archive,
    find_delta,
    latest_archive,
    latest_delta,
    list_archives,
    list_deltas,
)
from hasat.feed.archive.cumulative import CumulativeDelta
from hasat.feed.archive.manifest import MEDIA, Format, formats_of
from hasat.feed.archive.storage import MissingError
from hasat.feed.archive.versions import delta, list_versions, version_with_changes
from hasat.feed.changes import ExpiredError, head_of
from hasat.feed.dataset import Dataset
from hasat.http.routes import (
    ReadStoreDep,
    StoreDep,
    declare_problems,
    declare_responses,
    exchange_of,
    matches_etag,
)
from hasat.messages import msg, template
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

_ONE_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)


class RangeError(UsageError):
    """The requested range begins beyond the end of the file."""

    status = 416
    code = "range-not-satisfiable"
    title = template("Range not satisfiable")

    def __init__(self, size: int) -> None:
        super().__init__(
            msg("The file has {size:,} bytes; the range begins after the end.", size=size),
            remedy=msg("Request the whole file, or a range within it."),
        )


def parse_range(headers: Mapping[str, str], etag: str, size: int) -> tuple[int, int] | None:
    """Return start and end of the requested range; None for the whole file.

    An invalid range, several ranges and a range of another version mean the whole file, as RFC
    9110 (section 14) allows.
    """
    found = _ONE_RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or headers.get("if-range", etag).strip() != etag:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), int(last) + 1 if last else size
        if last and stop <= start:
            return None
    if start >= size:
        raise RangeError(size)
    return start, min(stop, size)


_ARCHIVE = {
    "fileName": "einvoice_users_2026-02-19_150412_5f0c6d3e.xml.gz",
    "sizeBytes": 71_303_168,
    "createdAt": "2026-02-19T15:04:12.000214",
    "userCount": 1_048_576,
    "format": "xml",
    "cursor": "UuW1wF0rVZ…",
    "epoch": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "head": 437,
    "version": 12,
    "digest": "00" * 16,
    "sha256": "00" * 32,
    "lastSyncAt": "2026-02-19T15:03:40.118340",
}
_DELTA = {
    "fileName": "einvoice_users_2026-02-19_150412_5f0c6d3e_7d.ndjson.gz",
    "days": 7,
    "format": "ndjson",
    "sizeBytes": 40_213,
    "sha256": "00" * 32,
    "createdAt": "2026-02-19T15:04:12.000214",
    "epoch": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "from": {
        "cursor": "UuW1wF0rVZ…",
        "head": 112,
        "version": 5,
        "digest": "00" * 16,
        "committedAt": "2026-02-12T15:03:40.118340",
    },
    "to": {
        "cursor": "QuX9aB1sWa…",
        "head": 437,
        "version": 12,
        "digest": "00" * 16,
        "committedAt": "2026-02-19T15:03:40.118340",
        "count": 1_048_576,
    },
    "added": 120,
    "modified": 160,
    "removed": 31,
}
_VERSION = {
    "version": 12,
    "run": 57,
    "committedAt": "2026-02-19T15:03:40.118340",
    "epoch": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "seqBefore": 0,
    "head": 437,
    "added": 167,
    "modified": 222,
    "removed": 48,
    "records": 1_048_576,
    "digest": "00" * 16,
    "cursor": "UuW1wF0rVZ…",
    "delta": "/api/v1/einvoice/deltas/12",
}
_GZIP = "application/gzip"


async def _storage(request: Request) -> Storage:
    storage: Storage = request.app.state.archive_storage
    return storage


StorageDep = Annotated[Storage, Depends(_storage)]


@cache
def archive_router(dataset: Dataset) -> APIRouter:
    """Return the routes of one dataset's archives, versions and deltas."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    name = dataset.name
    formats = formats_of(dataset)
    files = {MEDIA[one]: {"example": "(the file)"} for one in formats}
    file_responses: dict[int | str, dict[str, Any]] = {
        200: {"content": files},
        206: {"description": "The requested range.", "content": files},
        304: {"description": "Not modified."},
        **declare_problems(NoArchiveError, RangeError, ArchivePendingError, MissingError),
    }

    @router.get("/archives", summary=f"Archives of {name}", responses=declare_responses([_ARCHIVE]))
    async def archives(response: Response, store: ReadStoreDep) -> list[dict[str, Any]]:
        """Newest first. After reading the file, continue with `cursor` or `lastSyncAt`."""
        # Before the first run there is no sync time, and the list is empty.
        with suppress(UnavailableError):
            await _set_last_sync(response, store, name)
        return [archive.summary() for archive in await list_archives(store, name)]

    @router.get(
        "/archives/latest",
        summary=f"The newest archive of {name}",
        responses={**file_responses, **declare_problems(UsageError)},
        response_class=Response,
    )
    async def latest(
        request: Request,
        store: StoreDep,
        storage: StorageDep,
        form: Annotated[
            Format | None, Query(alias="format", description=f"One of {', '.join(formats)}.")
        ] = None,
    ) -> Response:
        """Continue with `changes?after=` and the header `X-Hasat-Cursor`."""
        if form is not None and form not in formats:
            raise UsageError(
                msg("{name} has no archives in the format {form}.", name=name, form=form),
                remedy=msg("Use {formats}.", formats=", ".join(formats)),
            )
        archive = await latest_archive(store, storage, name, form or formats[0])
        return await _download(request, storage, archive)

    @router.get(
        "/archives/{fileName}",
        summary=f"One archive of {name}",
        responses=file_responses,
        response_class=Response,
    )
    async def named(
        request: Request,
        store: StoreDep,
        storage: StorageDep,
        file_name: Annotated[str, Path(alias="fileName", examples=[_ARCHIVE["fileName"]])],
    ) -> Response:
        """The file, or a range of it: resume an interrupted download with `Range`."""
        archive = await find_archive(store, storage, name, file_name)
        return await _download(request, storage, archive)

    @router.get(
        "/versions",
        summary=f"Versions of {name}",
        responses=declare_responses({"versions": [_VERSION], "next": None}, UnavailableError),
    )
    async def versions(
        response: Response,
        store: ReadStoreDep,
        after: Annotated[
            int, Query(ge=0, le=MAX_EXACT_INTEGER, description="`next` of the previous page.")
        ] = 0,
        limit: Annotated[
            int, Query(ge=1, le=1000, description="Maximum number of versions.")
        ] = 100,
    ) -> dict[str, Any]:
        """One version per run in the order of commits, including runs without changes.

        `delta` is null if the changes have expired, and for the initial load. `next` is null on the
        last page.
        """
        await _set_last_sync(response, store, name)
        async with store.connection() as conn:
            found = await list_versions(conn, name, after=after, limit=limit)
        return {
            "versions": [
                {
                    **one.as_dict(name),
                    "delta": f"/api/v1/{name}/deltas/{one.version}" if one.has_changes else None,
                }
                for one in found
            ],
            "next": found[-1].version if len(found) == limit else None,
        }

    @router.get(
        "/deltas",
        summary=f"Cumulative deltas of {name}",
        responses=declare_responses([_DELTA]),
    )
    async def deltas(response: Response, store: ReadStoreDep) -> list[dict[str, Any]]:
        """The net changes of the last 1, 7 and 30 days as files, newest first.

        A delta turns the state of `from`, and every state between it and `to`, into that of `to`.
        """
        with suppress(UnavailableError):
            await _set_last_sync(response, store, name)
        return [delta.summary() for delta in await list_deltas(store, name)]

    @router.get(
        "/deltas/last/{days}",
        summary=f"The newest cumulative delta of {name}",
        responses=file_responses,
        response_class=Response,
    )
    async def last_days(
        request: Request,
        store: StoreDep,
        storage: StorageDep,
        days: Annotated[Literal["1", "7", "30"], Path(examples=["7"])],
        form: Annotated[Literal["ndjson", "parquet"], Query(alias="format")] = "ndjson",
    ) -> Response:
        """Of the last 1, 7 or 30 days; continue with `changes?after=` and `X-Hasat-Cursor`."""
        delta = await latest_delta(store, storage, name, int(days), form)
        return await _download(request, storage, delta)

    @router.get(
        "/deltas/files/{fileName}",
        summary=f"One cumulative delta of {name}",
        responses=file_responses,
        response_class=Response,
    )
    async def named_delta(
        request: Request,
        store: StoreDep,
        storage: StorageDep,
        file_name: Annotated[str, Path(alias="fileName", examples=[_DELTA["fileName"]])],
    ) -> Response:
        """The file, or a range of it. It never changes, so it may be cached for as long as it
        exists.
        """
        delta = await find_delta(store, storage, name, file_name)
        response = await _download(request, storage, delta)
        response.headers["Cache-Control"] = "private, max-age=604800, immutable"
        return response

    @router.get(
        "/deltas/{version}",
        summary=f"Changes of one version of {name}",
        responses={
            **declare_responses(
                "(the file)", NotFoundError, ExpiredError, UnavailableError, media=_GZIP
            ),
            304: {"description": "Not modified."},
        },
        response_class=Response,
    )
    async def version_delta(
        request: Request,
        store: StoreDep,
        version: Annotated[int, Path(ge=1, le=MAX_EXACT_INTEGER, examples=[12])],
    ) -> Response:
        """Gzipped NDJSON: one line about the version, then its changes in order."""
        async with store.connection() as conn:
            found = await version_with_changes(conn, name, version)
        # Weak: another machine may compress the same lines to other bytes.
        etag = f'W/"{found.epoch}-{version}"'
        headers = {
            "ETag": etag,
            "Cache-Control": "private, max-age=86400",
            "X-Last-Sync-At": local_time(found.committed_at),
        }
        if matches_etag(request.headers, etag):
            return Response(status_code=304, headers=headers)
        headers["Content-Disposition"] = f'attachment; filename="{name}_{version}.ndjson.gz"'
        return StreamingResponse(delta(store, name, found), headers=headers, media_type=_GZIP)

    return router


async def _set_last_sync(response: Response, store: Store, dataset: str) -> None:
    """Set the header with the time of the newest committed run."""
    async with store.connection() as conn:
        head = await head_of(conn, dataset)
    assert head.committed_at is not None
    response.headers["X-Last-Sync-At"] = local_time(head.committed_at)


async def _download(request: Request, storage: Storage, archive: Archive) -> Response:
    etag = f'"{archive.sha256.hex()}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "X-Last-Sync-At": local_time(archive.committed_at),
        "X-Hasat-Cursor": str(archive.cursor),
        "X-Hasat-Count": str(archive.records),
        "X-Hasat-Digest": archive.digest.hex(),
        "X-Hasat-Epoch": str(archive.epoch),
        "X-Hasat-Sha256": archive.sha256.hex(),
    }
    if isinstance(archive, CumulativeDelta):
        headers["X-Hasat-From"] = str(archive.from_cursor)
    if matches_etag(request.headers, etag):
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{archive.name}"'
    try:
        part = parse_range(request.headers, etag, archive.size)
    except RangeError as error:
        response = problem_response(error, exchange_of(request.scope))
        response.headers["Content-Range"] = f"bytes */{archive.size}"
        return response
    start, stop = part or (0, archive.size)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{archive.size}"
    headers["Content-Length"] = str(stop - start)
    pieces = storage.read(archive.path, start, stop)
    # Read before the headers are sent, so that a storage failure is a problem, not a cut download.
    first = await anext(pieces, b"")
    return StreamingResponse(
        _prepend(first, pieces),
        status_code=200 if part is None else 206,
        headers=headers,
        media_type=MEDIA[archive.format],
    )


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
