"""Forms that a page submits."""

from dataclasses import replace
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from hasat.api.authentication import check_same_site
from hasat.errors import UsageError
from hasat.messages import msg
from hasat.pages import PageContext, PageRequest, UploadedFile

_MAX_FIELDS = 50
_MAX_FILES = 5


async def read_form(context: PageContext, request: Request) -> PageRequest:
    """Read a submitted form; a form of another site is refused."""
    check_same_site(request.headers)
    files: dict[str, UploadedFile] = {}
    try:
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            form, files = await _read_parts(request)
        else:
            body = (await request.body()).decode()
            form = dict(parse_qsl(body, max_num_fields=_MAX_FIELDS))
    except ValueError as error:
        raise UsageError(
            msg("The form cannot be read."), remedy=msg("Reload the page and try again.")
        ) from error
    page_request = PageRequest.from_http(context, request)
    return replace(page_request, values={**form, **page_request.values}, files=files)


async def _read_parts(request: Request) -> tuple[dict[str, str], dict[str, UploadedFile]]:
    """Return the values and the files of a form in parts."""
    values: dict[str, str] = {}
    files: dict[str, UploadedFile] = {}
    try:
        async with request.form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS) as form:
            for name, one in form.items():
                if isinstance(one, UploadFile):
                    files[name] = UploadedFile(one.filename or "", await one.read())
                else:
                    values[name] = one
    except HTTPException as error:
        if error.status_code != 400:
            raise
        raise ValueError(error.detail) from error
    return values, files
