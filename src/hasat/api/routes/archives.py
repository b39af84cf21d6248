"""Archives, versions and deltas of a dataset."""

import re
from collections.abc import Mapping
from hasat.errors import UsageError
from hasat.messages import template
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from typing import Annotated, Any
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
    latest_archive,
    list_archives,
)
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
)
from hasat.messages import msg
from hasat.store import Store

_ONE_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)
_TAG = re.compile(r'(?:W/)?"[^"]*"')


class RangeError(UsageError):
    """The part that was asked for lies beyond the file."""

    status = 416
    code = "range-not-satisfiable"
    title = template("The file is shorter")

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The file has {size:,} bytes; the range begins beyond them.",
            remedy="Ask for the whole file, or for a range within it.",
        )


def parse_range(headers: Mapping[str, str], etag: str, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last of the part that is wanted; None for the whole.

    A range that is none, several ranges, and one that depends on another file than this mean the
    whole file, as the standard allows.
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


def matches_etag(headers: Mapping[str, str], etag: str) -> bool:
    """Whether the caller says that it has this already."""
    wanted = headers.get("if-none-match", "")
    if wanted.strip() == "*":
        return True
    return etag.removeprefix("W/") in {tag.removeprefix("W/") for tag in _TAG.findall(wanted)}

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


async def _place(request: Request) -> Storage:
    place: Storage = request.app.state.archive_storage
    return place


ThePlace = Annotated[Storage, Depends(_place)]


@cache
def archive_router(dataset: Dataset) -> APIRouter:
    """The files of one dataset."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    name = dataset.name
    formats = formats_of(dataset)
    files = {MEDIA[one]: {"example": "(the file)"} for one in formats}
    file_answers: dict[int | str, dict[str, Any]] = {
        200: {"content": files},
        206: {"description": "The part that was asked for.", "content": files},
        304: {"description": "You have it already."},
        **declare_problems(NoArchiveError, RangeError, ArchivePendingError, MissingError),
    }

    @router.get(
        "/archives", summary=f"The archives of {name}", responses=declare_responses([_ARCHIVE])
    )
    async def archives(response: Response, store: ReadStoreDep) -> list[dict[str, Any]]:
        """Newest first. `lastSyncAt` and `cursor` are where to go on after reading the file."""
        # Before the first run there is no time to tell, and the list is empty.
        with suppress(UnavailableError):
            await _date(response, store, name)
        return [archive.summary() for archive in await list_archives(store, name)]

    @router.get(
        "/archives/latest",
        summary=f"All of {name}, as of its newest archive",
        responses={**file_answers, **declare_problems(UsageError)},
        response_class=Response,
    )
    async def latest(
        request: Request,
        store: StoreDep,
        place: ThePlace,
        form: Annotated[
            Format | None, Query(alias="format", description=f"One of {', '.join(formats)}.")
        ] = None,
    ) -> Response:
        """Go on with `changes?after=` and the header `X-Hasat-Cursor`."""
        if form is not None and form not in formats:
            raise UsageError(
                msg("{name} is not archived as {form}.", name=name, form=form),
                remedy=msg("Ask for {formats}.", formats=" or ".join(formats)),
            )
        archive = await latest_archive(store, place, name, form or formats[0])
        return await _download(request, place, archive)

    @router.get(
        "/archives/{fileName}",
        summary=f"One archive of {name}",
        responses=file_answers,
        response_class=Response,
    )
    async def named(
        request: Request,
        store: StoreDep,
        place: ThePlace,
        file_name: Annotated[str, Path(alias="fileName", examples=[_ARCHIVE["fileName"]])],
    ) -> Response:
        """The file, or a part of it: a download that broke off is gone on with by `Range`."""
        archive = await find_archive(store, place, name, file_name)
        return await _download(request, place, archive)

    @router.get(
        "/versions",
        summary=f"What each run did to {name}",
        responses=declare_responses({"versions": [_VERSION], "next": None}, UnavailableError),
    )
    async def versions(
        response: Response,
        store: ReadStoreDep,
        after: Annotated[int, Query(ge=0, le=2**62, description="The `next` before.")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="Versions at the most.")] = 100,
    ) -> dict[str, Any]:
        """In the order of commits, those without a change too.

        `delta` is null where there are no changes to hand out: of the first filling, and when
        they have expired. `next` is null at the end.
        """
        await _date(response, store, name)
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
        "/deltas/{version}",
        summary=f"What one run changed in {name}",
        responses={
            **declare_responses(
                "(the file)", NotFoundError, ExpiredError, UnavailableError, media=_GZIP
            ),
            304: {"description": "You have it already."},
        },
        response_class=Response,
    )
    async def changes_of(
        request: Request,
        store: StoreDep,
        version: Annotated[int, Path(ge=1, le=2**62, examples=[12])],
    ) -> Response:
        """Gzipped lines of JSON: the facts, then the changes in order; there may be none."""
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


async def _date(response: Response, store: Store, dataset: str) -> None:
    """Say when the newest run was committed."""
    async with store.connection() as conn:
        head = await head_of(conn, dataset)
    assert head.committed_at is not None
    response.headers["X-Last-Sync-At"] = local_time(head.committed_at)


async def _download(request: Request, place: Storage, archive: Archive) -> Response:
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
    if matches_etag(request.headers, etag):
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{archive.name}"'
    try:
        part = parse_range(request.headers, etag, archive.size)
    except RangeError as error:
        answer = problem_response(error, exchange_of(request.scope))
        answer.headers["Content-Range"] = f"bytes */{archive.size}"
        return answer
    start, stop = part or (0, archive.size)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{archive.size}"
    headers["Content-Length"] = str(stop - start)
    pieces = place.read(archive.path, start, stop)
    # Before anything is sent: a store that does not respond is a problem, not half a download.
    first = await anext(pieces, b"")
    return StreamingResponse(
        _going_on(first, pieces),
        status_code=200 if part is None else 206,
        headers=headers,
        media_type=MEDIA[archive.format],
    )


async def _going_on(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
