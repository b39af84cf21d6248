"""Handlers that turn exceptions of routes and of the framework into problems."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from hasat.api.problems import (
    BodyTooLargeError,
    InvalidInputError,
    MethodNotAllowedError,
    NoSuchPathError,
    ProblemType,
    make_problem,
    problem_response,
)
from hasat.api.routing import RouteTable
from hasat.errors import (
    HasatError,
    UnavailableError,
    UsageError,
)
from hasat.feed.archive import Storage
from hasat.feed.archive.catalog import latest_archive
from hasat.feed.changes import ExpiredError
from hasat.http.routes import (
    FieldProblem,
    exchange_of,
)
from hasat.http.validation import describe_invalid
from hasat.messages import msg, translate
from hasat.source import Source
from hasat.store import Store


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Return a problem for what the router and the framework reject."""
    assert isinstance(error, HTTPException)
    exchange = exchange_of(request.scope)
    headers = dict(error.headers or {})
    routes: RouteTable = request.app.state.routes
    match error.status_code:
        case 404 if error.detail == HTTPStatus.NOT_FOUND.phrase:
            similar = routes.similar(exchange.path) if exchange.path.startswith("/api/") else None
            return problem_response(
                NoSuchPathError(
                    msg("There is no operation at {path}.", path=exchange.path),
                    remedy=(
                        msg(
                            "Did you mean {similar}? GET /docs lists all operations.",
                            similar=similar,
                        )
                        if similar
                        else msg("GET /docs lists all operations.")
                    ),
                ),
                exchange,
            )
        case 405:
            allowed = ", ".join(routes.methods(exchange.path))
            response = problem_response(
                MethodNotAllowedError(
                    msg(
                        "{path} does not support {method}.",
                        path=exchange.path,
                        method=exchange.method,
                    ),
                    remedy=msg("Use {allowed}.", allowed=allowed),
                ),
                exchange,
            )
            response.headers["Allow"] = allowed
            return response
        case 413:
            return problem_response(BodyTooLargeError(error.detail), exchange)
        case 400:
            return problem_response(UsageError(error.detail), exchange)
        case status if status < 400:
            return Response(status_code=status, headers=headers)
        case status:
            return make_problem(
                ProblemType.of_status(HTTPStatus(status)), exchange, error.detail, headers=headers
            )


class InvalidInputStatus:
    """The status of a request with invalid values: 422, or what a source prefers for its paths."""

    def __init__(self) -> None:
        self._by_base: dict[str, int] = {}

    def declare(self, source: Source, routers: Iterable[APIRouter]) -> None:
        """Note what a source prefers for the paths of its datasets and of its own routers."""
        prefixes = {
            *(f"/{dataset.name}" for dataset in source.datasets),
            *(router.prefix for router in routers if router.prefix),
        }
        self._by_base |= {f"/api/v1{one}": source.invalid_input_status for one in prefixes}

    def of(self, path: str) -> int:
        """Return the status for a path, declared or requested."""
        base = "/".join(path.split("/")[:4])
        return self._by_base.get(base, int(InvalidInputError.status))


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Return a problem with one entry for each invalid value; the values are not echoed."""
    assert isinstance(error, RequestValidationError)
    exchange = exchange_of(request.scope)
    statuses: InvalidInputStatus = request.app.state.invalid_input
    fields = [
        FieldProblem(place=place, field=field, message=translate(message, exchange.language))
        for place, field, message in _fields(error.errors())
    ]
    detail = "; ".join(f"{_named(field)}: {field.message}" for field in fields[:3])
    return make_problem(
        replace(ProblemType.of(InvalidInputError), status=statuses.of(exchange.path)),
        exchange,
        f"{detail}.",
        remedy=msg("See `errors` for each value, and /docs for the parameters of this operation."),
        errors=fields,
    )


def _fields(errors: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for error in errors:
        place, *rest = [str(part) for part in error["loc"]] or ["request"]
        field = "" if error["type"] == "json_invalid" else ".".join(rest)
        yield place, field, describe_invalid(error)


def _named(field: FieldProblem) -> str:
    return f"{field.place}.{field.field}" if field.field else field.place


async def on_expired_cursor(request: Request, error: Exception) -> Response:
    """Return 410 with the archive to restart from, or 503 until that archive exists."""
    assert isinstance(error, ExpiredError)
    state = request.app.state
    final = await check_restart_archive(error, state.store, state.archive_storage)
    return problem_response(final, exchange_of(request.scope))


async def check_restart_archive(error: ExpiredError, store: Store, storage: Storage) -> HasatError:
    """Return the error, or the reason why its archive cannot be downloaded yet."""
    if not error.starts_over:
        return error
    try:
        await latest_archive(store.primary, storage, error.dataset, "ndjson")
    except UnavailableError as pending:
        return pending
    return error
