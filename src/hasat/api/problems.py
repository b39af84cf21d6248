"""Everything that goes wrong leaves as an RFC 9457 problem, and every problem can be looked up."""

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

from hasat.api.refusals import (
    BodyTooLargeError,
    InvalidInputError,
    MethodNotAllowedError,
    NoSuchPathError,
    UnexpectedError,
)
from hasat.api.routes import RouteTable
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
    return _answer(
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


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Problems for what the router and the framework refuse by themselves."""
    assert isinstance(error, HTTPException)
    exchange = exchange_of(request.scope)
    headers = dict(error.headers or {})
    routes: RouteTable = request.app.state.routes
    match error.status_code:
        case 404 if error.detail == HTTPStatus.NOT_FOUND.phrase:
            similar = routes.similar(exchange.path) if exchange.path.startswith("/api/") else None
            return problem_response(
                NoSuchPathError(
                    msg("There is nothing at {path}.", path=exchange.path),
                    remedy=(
                        msg(
                            "Did you mean {similar}? GET /docs lists what there is.",
                            similar=similar,
                        )
                        if similar
                        else msg("GET /docs lists what there is.")
                    ),
                ),
                exchange,
            )
        case 405:
            allowed = ", ".join(routes.methods(exchange.path))
            answer = problem_response(
                MethodNotAllowedError(
                    msg(
                        "{path} does not take {method}.", path=exchange.path, method=exchange.method
                    ),
                    remedy=msg("Use {allowed}.", allowed=allowed),
                ),
                exchange,
            )
            answer.headers["Allow"] = allowed
            return answer
        case 413:
            return problem_response(BodyTooLargeError(error.detail), exchange)
        case 400:
            return problem_response(UsageError(error.detail), exchange)
        case status if status < 400:
            return Response(status_code=status, headers=headers)
        case status:
            return _answer(
                ProblemType.of_status(HTTPStatus(status)), exchange, error.detail, headers=headers
            )


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """A 422 with one entry for each value that cannot be used; values are not repeated."""
    assert isinstance(error, RequestValidationError)
    exchange = exchange_of(request.scope)
    fields = [
        FieldProblem(place=place, field=field, message=message)
        for place, field, message in _fields(error.errors())
    ]
    return _answer(
        ProblemType.of(InvalidInputError),
        exchange,
        "; ".join(f"{_named(field)}: {field.message}" for field in fields[:3]) + ".",
        remedy=msg("See `errors` for each value, and /docs for what this operation takes."),
        errors=fields,
    )


def _fields(errors: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for error in errors:
        place, *rest = [str(part) for part in error["loc"]] or ["request"]
        if error["type"] == "json_invalid":
            yield place, "", f"not valid JSON at character {rest[0]}"
        else:
            yield place, ".".join(rest), str(error["msg"])


def _named(field: FieldProblem) -> str:
    return f"{field.place}.{field.field}" if field.field else field.place


def _headers(error: HasatError) -> dict[str, str]:
    if isinstance(error, TooManyRequestsError | UnavailableError):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if error.status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="hasat"'}
    return {}


def _answer(
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
