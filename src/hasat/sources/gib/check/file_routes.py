"""The HTTP route that checks a list of customers."""

import asyncio
import json
import shutil
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Header, Request, UploadFile
from starlette.responses import Response, StreamingResponse

from hasat.errors import HasatError, UnavailableError
from hasat.http.routes import (
    ReadStoreDep,
    StorableText,
    body_limit,
    declare_responses,
    dumps,
    exchange_of,
    reads,
)
from hasat.messages import Language, translate
from hasat.sources.gib.check.customers import CheckedCustomers, check_customers
from hasat.store import Store
from hasat.tables import MEDIA_TYPES, FileFormat, OnProgress, TableError, format_of_name

MAX_FILE_BYTES = 100_000_000
_NDJSON = "application/x-ndjson"
# A multiple of three bytes, so that pieces of Base64 can be joined.
_CHUNK = 3 << 16

router = APIRouter(prefix="/check", tags=["check"])


@dataclass(frozen=True)
class _Order:
    """The parameters of a request, without the file."""

    name: str
    column: str | None
    format: FileFormat
    language: Language

    @property
    def result_name(self) -> str:
        return f"{PurePath(self.name).stem}-checked.{self.format}"


@router.post(
    "/file",
    summary="Check a list of customers",
    response_class=Response,
    responses=declare_responses(
        "the list as a file", TableError, UnavailableError, media=MEDIA_TYPES["xlsx"]
    ),
)
@body_limit(MAX_FILE_BYTES)
@reads("einvoice", "edespatch")
async def check_file(
    request: Request,
    store: ReadStoreDep,
    file: Annotated[UploadFile, File(description="A CSV, TSV or XLSX file.")],
    column: Annotated[
        StorableText | None,
        Form(description="The column with the identifiers, by heading or place; default: found."),
    ] = None,
    result_format: Annotated[
        FileFormat | None, Form(alias="format", description="Default: that of the file.")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """The list with the answers after its own columns, in the same order.

    `X-Check-Summary` has the counts and the column as JSON. With `Accept: application/x-ndjson` the
    response has a line for each step: `progress`, then `summary`, then `data` with pieces of the
    file in Base64, or `error`.
    """
    name = file.filename or "customers"
    order = _Order(
        name,
        column or None,
        result_format or format_of_name(name),
        exchange_of(request.scope).language,
    )
    with tempfile.NamedTemporaryFile(delete=False) as copy:
        source = Path(copy.name)
        await asyncio.to_thread(shutil.copyfileobj, file.file, copy, _CHUNK)
    if _NDJSON in accept:
        return StreamingResponse(_stream_steps(store, source, order), media_type=_NDJSON)
    target = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been sent
    try:
        done = await _check(store, source, target, order)
    except BaseException:
        target.close()
        raise
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(order.result_name)}",
        "Content-Length": str(target.seek(0, 2)),
        "X-Check-Summary": json.dumps(done.as_json()),
        "Vary": "Accept, Accept-Language",
    }
    return StreamingResponse(_chunks(target), headers=headers, media_type=MEDIA_TYPES[order.format])


async def _check(
    store: Store,
    source: Path,
    target: IO[bytes],
    order: _Order,
    on_progress: OnProgress | None = None,
) -> CheckedCustomers:
    """Check the uploaded copy and delete it."""
    try:
        return await check_customers(
            store,
            source,
            target,
            order.format,
            name=order.name,
            column=order.column,
            language=order.language,
            on_progress=on_progress,
        )
    finally:
        source.unlink(missing_ok=True)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        file.seek(0)
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


async def _stream_steps(store: Store, source: Path, order: _Order) -> AsyncIterator[str]:
    """Yield lines of JSON: the progress, the summary and the file, or the error."""
    loop = asyncio.get_running_loop()
    steps: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def report(done: float, total: float | None, note: str) -> None:
        # Called from threads, too.
        text = translate(note, order.language)
        step = {"progress": {"done": done, "total": total, "note": text}}
        loop.call_soon_threadsafe(steps.put_nowait, step)

    with tempfile.TemporaryFile() as target:
        work = asyncio.create_task(_check(store, source, target, order, report))
        work.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield f"{dumps(step)}\n"
            try:
                done = await work
            except HasatError as error:
                yield f"{dumps({'error': _error_json(error, order.language)})}\n"
                return
            file = {"name": order.result_name, "size": target.seek(0, 2)}
            media_type = MEDIA_TYPES[order.format]
            summary = {**done.as_json(), "file": {**file, "mediaType": media_type}}
            yield f"{dumps({'summary': summary})}\n"
            target.seek(0)
            while chunk := await asyncio.to_thread(target.read, _CHUNK):
                yield f"{dumps({'data': b64encode(chunk).decode()})}\n"
        finally:
            work.cancel()
            await asyncio.wait([work])


def _error_json(error: HasatError, language: Language) -> dict[str, Any]:
    remedy = None if error.remedy is None else translate(error.remedy, language)
    return {"code": error.code, "detail": translate(error.message, language), "remedy": remedy}
