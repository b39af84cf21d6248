"""The HTTP route that finds the parcels of an uploaded table."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePath
from typing import IO, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import Response, StreamingResponse

from hasat.errors import OutOfQuotaError, UnavailableError, UsageError
from hasat.http.routes import (
    SettingsDep,
    StorableText,
    StoreDep,
    audited,
    body_limit,
    declare_responses,
    exchange_of,
)
from hasat.messages import Language, msg
from hasat.settings import Settings
from hasat.sources.tkgm.export import ExportOptions, check_crs, file_extension
from hasat.sources.tkgm.lists.fetch import ListFetch, ListResult, list_id
from hasat.sources.tkgm.lists.files import write_result
from hasat.sources.tkgm.lists.rows import read_list
from hasat.sources.tkgm.registry.client import open_registry
from hasat.sources.tkgm.settings import WORKERS_SETTING, TkgmSettings
from hasat.sources.tkgm.source import PARCELS
from hasat.store import Store
from hasat.tables import MEDIA_TYPES, TableError

MAX_FILE_BYTES = 20_000_000
# Longer lists are resumed with the same file.
_MAX_SECONDS = 240.0
_CHUNK = 1 << 18
_Format = Literal["xlsx", "csv", "gpkg", "geojson", "shp", "fgb", "parquet", "kml", "kmz", "dxf"]
_MEDIA = "application/octet-stream"

router = APIRouter(prefix=f"/{PARCELS.name}", tags=[PARCELS.name])


@router.post(
    "/list",
    summary="Find the parcels of a table",
    response_class=Response,
    responses=declare_responses(
        "the table as a file",
        TableError,
        UsageError,
        OutOfQuotaError,
        UnavailableError,
        media=MEDIA_TYPES["xlsx"],
    ),
    dependencies=[audited("list.start")],
)
@body_limit(MAX_FILE_BYTES)
async def find_list(
    request: Request,
    store: StoreDep,
    settings: SettingsDep,
    file: Annotated[UploadFile, File(description="A CSV, TSV or XLSX file with headings.")],
    result_format: Annotated[_Format, Form(alias="format")] = "xlsx",
    crs: Annotated[StorableText | None, Form(description="As in `hasat tkgm export`.")] = None,
) -> Response:
    """The table with the parcel of each row, or the parcels as a map.

    Headings: il, ilçe, mahalle (or mahalleId), ada and parsel; or lat and lon (enlem, boylam).
    Other columns stay, and `note` says why a row has no parcel; maps have only the rows with a
    parcel. `X-List-Summary` has the counts. `unanswered` rows were not requested in time or within
    the quota: send the same file again to resume.
    """
    name = PurePath(file.filename or "parcels.csv").name
    options = ExportOptions(check_crs(crs) if crs else None)
    language = exchange_of(request.scope).language
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"list{PurePath(name).suffix}"
        with path.open("wb") as copy:
            await asyncio.to_thread(shutil.copyfileobj, file.file, copy, _CHUNK)
        result = await _fetch(store, settings, path, name)
        out = Path(folder) / f"{PurePath(name).stem}-parcels.{file_extension(result_format)}"
        sent = await asyncio.to_thread(_written, result, out, options, language)
    summary: dict[str, object] = {"rows": len(result.results), **result.counts}
    summary["stopped"] = None if result.stopped is None else result.stopped.code
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(out.name)}",
        "X-List-Summary": json.dumps(summary),
        "Vary": "Accept-Language",
    }
    media = MEDIA_TYPES[result_format] if result_format in ("csv", "xlsx") else _MEDIA
    return StreamingResponse(_chunks(sent), headers=headers, media_type=media)


async def _fetch(store: Store, settings: Settings, path: Path, name: str) -> ListResult:
    workers = settings.section(TkgmSettings).workers_file
    if workers is None:
        raise UsageError(
            msg("No endpoints configured."),
            remedy=msg("Name your workers.json in {setting}.", setting=WORKERS_SETTING),
        )
    source = await asyncio.to_thread(read_list, path, name)
    async with open_registry(store, settings, workers) as registry:
        work = ListFetch(store, settings, registry, source, list_id(path), max_seconds=_MAX_SECONDS)
        return await work.run()


def _written(
    result: ListResult, out: Path, options: ExportOptions, language: Language
) -> IO[bytes]:
    """Write the result and return it as an open file, which outlives its name."""
    write_result(result, out, options, language)
    return out.open("rb")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
