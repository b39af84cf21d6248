"""What a form sent, and the proof that one of our own pages sent it."""

from dataclasses import replace
from urllib.parse import parse_qsl

from starlette.requests import Request

from hasat.api.authentication import check_same_site
from hasat.errors import UsageError
from hasat.messages import msg
from hasat.web.frame import Frame
from hasat.web.page import Asked

_MOST_FIELDS = 50


async def asked_by_form(request: Request, frame: Frame) -> Asked:
    """The question with the form's fields; refuses forms of other sites."""
    check_same_site(request.headers)
    try:
        fields = dict(parse_qsl((await request.body()).decode(), max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise UsageError(
            msg("The form cannot be read."), remedy=msg("Load the page again.")
        ) from error
    asked = frame.asked(request)
    return replace(asked, values={**fields, **asked.values})
