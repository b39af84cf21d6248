"""RFC 9457 problems: the errors of the HTTP server, and the response to each error."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from hasat.errors import (
    AuthenticationError,
    DatabaseError,
    HasatError,
    NotAllowedError,
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
    describe_error,
)
from hasat.messages import Message, change_text, msg, template, translate
from hasat.telemetry import current_ids
from hasat.text import mask_addresses


class CredentialsMalformedError(AuthenticationError):
    """The credentials are malformed, or the request has more than one set."""

    code = "credentials-malformed"
    title = template("Malformed credentials")


class KeyUnknownError(AuthenticationError):
    """No API key of this server has this value."""

    code = "key-unknown"
    title = template("Unknown API key")


class KeyExpiredError(AuthenticationError):
    """The lifetime of the API key is over."""

    code = "key-expired"
    title = template("API key expired")


class KeyRevokedError(AuthenticationError):
    """An operator revoked the API key."""

    code = "key-revoked"
    title = template("API key revoked")


class SignatureWrongError(AuthenticationError):
    """No client has this access key, or the signature was not made with its secret."""

    code = "signature-wrong"
    title = template("Invalid signature")


class TimestampOutsideError(AuthenticationError):
    """The timestamp of a signed request differs too much from the time of the server."""

    code = "timestamp-outside"
    title = template("Timestamp out of tolerance")


class HostNotAllowedError(NotAllowedError):
    """The request has a Host header that this server does not serve.

    A server on loopback serves only loopback names, so that no web page can reach it through its
    own domain (DNS rebinding).
    """

    code = "host-not-allowed"
    title = template("Host not allowed")


class OriginNotAllowedError(NotAllowedError):
    """A page of another site sent a request that changes state."""

    code = "origin-not-allowed"
    title = template("Origin not allowed")


class NoSuchPathError(NotFoundError):
    """No operation of this server has this path."""

    code = "no-such-path"
    title = template("No such path")


class MethodNotAllowedError(UsageError):
    """The path does not support this method; the header Allow lists those it does."""

    status = 405
    code = "method-not-allowed"
    title = template("Method not allowed")


class BodyTooLargeError(UsageError):
    """The request body is larger than this route accepts."""

    status = 413
    code = "body-too-large"
    title = template("Body too large")


class InvalidInputError(UsageError):
    """The request has invalid values; `errors` lists each with its location and reason."""

    status = 422
    code = "invalid-input"
    title = template("Invalid input")


class UnexpectedError(HasatError):
    """A fault in Hasat itself; the log has the details under the requestId of the response."""

    code = "unexpected"
    title = template("Internal error")


@dataclass(frozen=True)
class ProblemType:
    """A type of problem, as the field `type` names it."""

    code: str
    title: str
    status: int
    meaning: str

    @classmethod
    def of(cls, error: type[HasatError]) -> "ProblemType":
        return cls(error.code, error.title, error.status, describe_error(error))

    @classmethod
    def of_status(cls, status: HTTPStatus) -> "ProblemType":
        # By number: Python changes the phrases between versions.
        text = status.description or status.phrase
        return cls(f"http-{status.value}", status.phrase, status.value, text)


def problem_types() -> Mapping[str, ProblemType]:
    """Return every problem type that Hasat and its sources define, by code."""
    return dict(sorted((error.code, ProblemType.of(error)) for error in _families(HasatError)))


def _families(error: type[HasatError]) -> Iterator[type[HasatError]]:
    if "code" in vars(error):
        yield error
    for child in error.__subclasses__():
        yield from _families(child)


def problem_response(error: Exception, exchange: Exchange) -> Response:
    """Return the response to a request that ended in this error."""
    known = hide_database_details(to_hasat_error(error, exchange), exchange)
    return make_problem(
        ProblemType.of(type(known)),
        exchange,
        known.message,
        remedy=known.remedy,
        headers=_headers(known),
        extensions=known.extensions,
    )


def to_hasat_error(error: Exception, exchange: Exchange) -> HasatError:
    """Return the error itself, or the HasatError that describes a foreign one to the caller."""
    if isinstance(error, HasatError):
        return error
    if isinstance(error, psycopg.OperationalError):
        return DatabaseError(
            msg("The database did not respond."),
            remedy=msg("Try again in a few seconds; see /readyz."),
        )
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return UsageError(
            msg("A text in the request contains U+0000, which PostgreSQL cannot store."),
            remedy=msg("Remove it."),
        )
    return UnexpectedError(
        msg(
            "The request failed unexpectedly. The log has the details under {request_id}.",
            request_id=exchange.request_id,
        ),
        remedy=msg("Report this id to the operator."),
    )


def hide_database_details(error: HasatError, exchange: Exchange) -> HasatError:
    """Return the error without the address of the database, unless the caller is an operator."""
    caller = exchange.caller
    if not isinstance(error, DatabaseError) or (caller and "operate" in caller.scopes):
        return error
    return DatabaseError(
        msg(
            "The database is unavailable. The log has the reason under {request_id}.",
            request_id=exchange.request_id,
        ),
        remedy=msg("Try again in a few seconds, or report this id to the operator."),
    )


def _headers(error: HasatError) -> dict[str, str]:
    if isinstance(error, TooManyRequestsError | UnavailableError):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="hasat"'}
    return {}


def make_problem(
    problem_type: ProblemType,
    exchange: Exchange,
    detail: str,
    *,
    remedy: str | None = None,
    errors: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> Response:
    language = exchange.language
    detail = change_text(detail, mask_addresses)
    problem = Problem(
        type=f"/problems/{problem_type.code}",
        title=translate(problem_type.title, language),
        status=problem_type.status,
        detail=translate(detail, language),
        instance=exchange.path,
        code=problem_type.code,
        params=detail.to_json()["params"] if isinstance(detail, Message) else None,
        remedy=None if remedy is None else translate(remedy, language),
        request_id=exchange.request_id,
        trace_id=ids[0] if (ids := current_ids()) is not None else None,
        errors=errors,
    )
    return JSONResponse(
        {**problem.model_dump(by_alias=True, exclude_none=True), **(extensions or {})},
        status_code=problem_type.status,
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


@router.get("/problems", summary="Problem types", responses=declare_responses([_EXAMPLE.__dict__]))
async def list_problems() -> list[ProblemType]:
    return list(problem_types().values())


@router.get(
    "/problems/{code}",
    summary="One problem type",
    responses=declare_responses(_EXAMPLE.__dict__, NotFoundError),
)
async def explain_problem(code: str) -> ProblemType:
    found = problem_types().get(code)
    if found is None:
        found = next((one for one in _status_types() if one.code == code), None)
    if found is None:
        raise NotFoundError(
            msg("There is no problem type {code!r}.", code=code),
            remedy=msg("GET /problems lists them."),
        )
    return found


def _status_types() -> Iterator[ProblemType]:
    return (
        ProblemType.of_status(status) for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST
    )
