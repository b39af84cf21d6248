"""RFC 9457 problems: the errors of the HTTP server, and the response to each error."""

from hasat.errors import (
    AuthenticationError,
    HasatError,
    NotAllowedError,
    NotFoundError,
    UsageError,
)
from hasat.messages import template
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
import psycopg
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from hasat.api.middleware import RouteTable
from hasat.errors import (
    DatabaseError,
    HasatError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
    UsageError,
)
from hasat.http.routes import (
    PROBLEM_JSON,
    Exchange,
    FieldProblem,
    Problem,
    declare_responses,
    exchange_of,
    meaning,
)
from hasat.messages import Message, change_text, msg, translate
from hasat.text import mask_addresses


class CredentialsMalformedError(AuthenticationError):
    """The credentials do not have the form that Hasat hands out, or came in more than one way."""

    code = "credentials-malformed"
    title = template("The credentials cannot be read")


class KeyUnknownError(AuthenticationError):
    """No API key of this server has this value."""

    code = "key-unknown"
    title = template("This API key is not known")


class KeyExpiredError(AuthenticationError):
    """The API key was made for a limited time, and that time is over."""

    code = "key-expired"
    title = template("This API key has expired")


class KeyRevokedError(AuthenticationError):
    """The API key was revoked by an operator."""

    code = "key-revoked"
    title = template("This API key was revoked")


class SignatureWrongError(AuthenticationError):
    """No client has this access key, or the signature was not made with its secret."""

    code = "signature-wrong"
    title = template("The signature is not valid")


class TimestampOutsideError(AuthenticationError):
    """The request was signed too long ago, or in the future: the two clocks must agree."""

    code = "timestamp-outside"
    title = template("The timestamp is outside of the tolerance")


class HostNotAllowedError(NotAllowedError):
    """The request was sent to a name that this server does not answer for.

    A server on loopback answers only for loopback names, so that no web page can reach it
    through a name of its own.
    """

    code = "host-not-allowed"
    title = template("This server does not answer for that name")


class OriginNotAllowedError(NotAllowedError):
    """A page of another site tried to change something here."""

    code = "origin-not-allowed"
    title = template("Requests of other sites change nothing")


class NoSuchPathError(NotFoundError):
    """No operation of this server has the path: the address is wrong, whatever it asks about."""

    code = "no-such-path"
    title = template("There is nothing at this address")


class MethodNotAllowedError(UsageError):
    """The path exists, but not for this method; the header Allow lists those it has."""

    status = 405
    code = "method-not-allowed"
    title = template("Not with this method")


class BodyTooLargeError(UsageError):
    """The body of the request is larger than this route takes in."""

    status = 413
    code = "body-too-large"
    title = template("The body is too large")


class InvalidInputError(UsageError):
    """Values of the request cannot be used; `errors` lists each with its place and reason."""

    status = 422
    code = "invalid-input"
    title = template("Some values cannot be used")


class UnexpectedError(HasatError):
    """A fault in Hasat itself; its log holds the details under the answer's requestId."""

    code = "unexpected"
    title = template("Something went wrong inside Hasat")


@dataclass(frozen=True)
class ProblemType:
    """A kind of problem, as `type` names it."""

    code: str
    title: str
    status: int
    meaning: str

    @classmethod
    def of(cls, error: type[HasatError]) -> "ProblemType":
        return cls(error.code, error.title, error.status, meaning(error))

    @classmethod
    def of_status(cls, status: HTTPStatus) -> "ProblemType":
        # By number: the phrases have changed before.
        text = status.description or status.phrase
        return cls(f"http-{status.value}", status.phrase, status.value, text)


def problem_types() -> Mapping[str, ProblemType]:
    """Every kind of problem that Hasat and its sources define, by code."""
    return dict(sorted((error.code, ProblemType.of(error)) for error in _families(HasatError)))


def _families(error: type[HasatError]) -> Iterator[type[HasatError]]:
    if "code" in vars(error):
        yield error
    for child in error.__subclasses__():
        yield from _families(child)


def problem_response(error: Exception, exchange: Exchange) -> Response:
    """The answer to a request that ended in this error."""
    known = hide_database_details(to_hasat_error(error, exchange), exchange)
    return make_problem(
        ProblemType.of(type(known)),
        exchange,
        known.message,
        remedy=known.remedy,
        headers=_headers(known),
    )


def to_hasat_error(error: Exception, exchange: Exchange) -> HasatError:
    """The error itself, or what it means to the caller if it is not one of ours."""
    if isinstance(error, HasatError):
        return error
    if isinstance(error, psycopg.OperationalError):
        return DatabaseError(
            msg("The database did not answer."),
            remedy=msg("Try again in a few seconds; see /readyz."),
        )
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return UsageError(
            msg("A text in the request has a NUL character, which no stored text can hold."),
            remedy=msg("Leave it out."),
        )
    return UnexpectedError(
        msg(
            "The request could not be answered. The log has the details under {request_id}.",
            request_id=exchange.request_id,
        ),
        remedy=msg("Tell the operator this id."),
    )


def hide_database_details(error: HasatError, exchange: Exchange) -> HasatError:
    """The error as this caller hears it: where the database is concerns only who operates it."""
    caller = exchange.caller
    if not isinstance(error, DatabaseError) or (caller and "operate" in caller.scopes):
        return error
    return DatabaseError(
        msg(
            "The database is not available. The log has the reason under {request_id}.",
            request_id=exchange.request_id,
        ),
        remedy=msg("Try again in a few seconds, or tell the operator this id."),
    )


def _headers(error: HasatError) -> dict[str, str]:
    if isinstance(error, TooManyRequestsError | UnavailableError):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="hasat"'}
    return {}


def make_problem(
    kind: ProblemType,
    exchange: Exchange,
    detail: str,
    *,
    remedy: str | None = None,
    errors: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    language = exchange.language
    detail = change_text(detail, mask_addresses)
    problem = Problem(
        type=f"/problems/{kind.code}",
        title=translate(kind.title, language),
        status=kind.status,
        detail=translate(detail, language),
        instance=exchange.path,
        code=kind.code,
        params=detail.to_json()["params"] if isinstance(detail, Message) else None,
        remedy=None if remedy is None else translate(remedy, language),
        request_id=exchange.request_id,
        errors=errors,
    )
    return JSONResponse(
        problem.model_dump(by_alias=True, exclude_none=True),
        status_code=kind.status,
        headers={
            "Cache-Control": "no-store",
            "Content-Language": language,
            "Vary": "Accept-Language",
            **(headers or {}),
        },
        media_type=PROBLEM_JSON,
    )


router = APIRouter(tags=["problems"])
_EXAMPLE = ProblemType.of(NotFoundError)


@router.get(
    "/problems", summary="Every kind of problem", responses=declare_responses([_EXAMPLE.__dict__])
)
async def list_problems() -> list[ProblemType]:
    return list(problem_types().values())


@router.get(
    "/problems/{code}",
    summary="What a kind of problem means",
    responses=declare_responses(_EXAMPLE.__dict__, NotFoundError),
)
async def explain_problem(code: str) -> ProblemType:
    named = problem_types().get(code)
    if named is None:
        named = next((kind for kind in _of_statuses() if kind.code == code), None)
    if named is None:
        raise NotFoundError(
            msg("There is no kind of problem called {code!r}.", code=code),
            remedy=msg("GET /problems lists them."),
        )
    return named


def _of_statuses() -> Iterator[ProblemType]:
    return (
        ProblemType.of_status(status) for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST
    )
