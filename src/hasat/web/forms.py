"""Forms that a page submits."""

from dataclasses import replace
from urllib.parse import parse_qsl

from starlette.requests import Request

from hasat.api.authentication import check_same_site
from hasat.errors import UsageError
from hasat.messages import msg
from hasat.pages import PageContext, PageRequest

_MAX_FIELDS = 50


async def read_form(context: PageContext, request: Request) -> PageRequest:
    """Read a submitted form; a form of another site is refused."""
    check_same_site(request.headers)
    try:
        body = (await request.body()).decode()
        form = dict(parse_qsl(body, max_num_fields=_MAX_FIELDS))
    except ValueError as error:
        raise UsageError(
            msg("The form cannot be read."), remedy=msg("Reload the page and try again.")
        ) from error
    page_request = PageRequest.from_http(context, request)
    return replace(page_request, values={**form, **page_request.values})
