"""The contract for route authors: callers, dependencies, parameters, responses and problems.

It is below the sources because their routes use it; the rest of the HTTP API is in `hasat.api`.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from hasat.errors import AuthenticationError, HasatError, NotAllowedError, UsageError
from hasat.feed.lookups import RecordLookups
from hasat.messages import DEFAULT_LANGUAGE, Language, msg, template
from hasat.settings import Settings
from hasat.settings.values import did_you_mean
from hasat.store import Store
from hasat.store.audit import Actor, ActorKind, AuditEntry
from hasat.store.audit import audited as audited_action

Access = Literal["read", "operate"]
LANGUAGE = "hasat.language"
"""The key of an ASGI scope with the language of the requested page."""

PROBLEM_JSON = "application/problem+json"
PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
ONE_MEGABYTE = 1_000_000

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ETAG = re.compile(r'(?:W/)?"[^"]*"')

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request."""

    id: str
    name: str
    scopes: frozenset[Access]
    is_local: bool = False
    """Whether it is trusted only because it is on this machine."""
    bucket: str = "local"
    """The rate-limit bucket; a login shares the bucket of its key."""
    per_minute: int | None = None
    """Its own rate limit; None for `serve.requests_per_minute`."""
    kind: ActorKind = "key"
    """How it was authenticated, for the audit record."""
    datasets: frozenset[str] | None = None
    """The only datasets that it may read; None for all."""

    def may_read(self, dataset: str) -> bool:
        """Return whether it may read a dataset."""
        return self.datasets is None or dataset in self.datasets

    @property
    def owned(self) -> str | None:
        """Return the owner whose watch lists and deliveries it sees; None for those of all."""
        return None if "operate" in self.scopes else self.bucket


@dataclass(frozen=True)
class Allowance:
    """The state of the rate limit after one request."""

    limit: int
    remaining: int
    reset_seconds: int
    retry_after: int | None = None


@dataclass(slots=True)
class Exchange:
    """The state of one request that middleware and routes share."""

    request_id: str
    method: str
    path: str
    language: Language = DEFAULT_LANGUAGE
    caller: Caller | None = None
    allowance: Allowance | None = None
    route: str | None = None
    """The declared path of the route, where it is known without a search."""


class DatasetNotAllowedError(NotAllowedError):
    """The API key is restricted to other datasets."""

    code = "dataset-not-allowed"
    title = template("Dataset not allowed")


class ParameterError(UsageError):
    """A query parameter does not exist, or has no effect together with the others."""

    code = "unknown-parameter"
    title = template("Parameter not supported")


class CamelModel(BaseModel):
    """The base of responses whose JSON names are in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, from_attributes=True)


class FieldProblem(BaseModel):
    """One invalid value of a request."""

    place: str = Field(serialization_alias="in", examples=["query"])
    field: str = Field(examples=["page"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class Problem(BaseModel):
    """An RFC 9457 problem with a remedy."""

    type: str = Field(examples=["/problems/not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no run 17."])
    instance: str = Field(examples=["/api/v1/runs/17"])
    code: str = Field(examples=["not-found"])
    params: dict[str, Any] | None = Field(
        default=None,
        description="The values in `detail`, for clients with their own texts.",
        examples=[{"run_id": 17}],
    )
    remedy: str | None = Field(default=None, examples=["List the runs with GET /api/v1/runs."])
    request_id: str = Field(serialization_alias="requestId", examples=["0f8e2c1d9ab34e57"])
    trace_id: str | None = Field(
        default=None,
        serialization_alias="traceId",
        description="The OpenTelemetry trace of the request, if the server exports traces.",
    )
    errors: list[FieldProblem] | None = None


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _reads(request: Request) -> Store:
    store: Store = request.app.state.store
    return store.reads


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError(msg("contains U+0000, which PostgreSQL cannot store"))
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(msg("contains an unpaired surrogate"))
    return text


async def _lookups(request: Request) -> RecordLookups:
    lookups: RecordLookups = request.app.state.lookups
    return lookups


LookupsDep = Annotated[RecordLookups, Depends(_lookups)]
"""The current records of any dataset."""
StoreDep = Annotated[Store, Depends(_store)]
ReadStoreDep = Annotated[Store, Depends(_reads)]
"""For routes that only read and whose response may be as old as a standby."""
SettingsDep = Annotated[Settings, Depends(_settings)]
StorableText = Annotated[
    str, AfterValidator(_storable), Field(json_schema_extra={"pattern": "^[^\\u0000]*$"})
]
"""Text that PostgreSQL can store and compare."""


async def check_parameters(request: Request) -> None:
    """Reject a query parameter that the route does not declare, or that is repeated."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    declared = declared_parameters(request.scope["route"])
    if unknown := sorted(counts.keys() - declared.keys()):
        raise unknown_parameters(unknown, declared)
    if repeated := [name for name, many in declared.items() if counts[name] > 1 and not many]:
        raise RequestValidationError(
            [
                {"type": "given_twice", "loc": ("query", name), "msg": "is given more than once"}
                for name in repeated
            ]
        )


def reject_parameters(request: Request, names: Iterable[str], reason: str) -> None:
    """Reject the named parameters that the request has, because they have no effect here."""
    if given := [name for name in names if name in request.query_params]:
        raise ParameterError(
            msg("{names}: {reason}", names=_quoted(given), reason=reason), remedy=msg("Remove it.")
        )


def unknown_parameters(unknown: Sequence[str], known: Iterable[str]) -> ParameterError:
    """Return the error for unknown parameters, with a suggestion when a name is similar."""
    listed = sorted(known)
    return ParameterError(
        msg(
            "Unknown parameter {quoted}{unknown}",
            quoted=_quoted(name[:40] for name in unknown[:3]),
            unknown=did_you_mean(unknown[0], listed, 0.6),
        ),
        remedy=(
            msg("Supported parameters: {listed}.", listed=_quoted(listed))
            if listed
            else msg("This path takes no parameters.")
        ),
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def declared_parameters(route: Any) -> dict[str, bool]:
    """Return the query parameters of a route, and whether each may be repeated."""
    documented = (route.openapi_extra or {}).get("parameters", ())
    found = {one["name"]: False for one in documented if one["in"] == "query"}
    pending = [route.dependant]
    while pending:
        dependant = pending.pop()
        pending += dependant.dependencies
        for param in dependant.query_params:
            found[param.alias] = _is_list(param.field_info.annotation)
    return found


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


def exchange_of(scope: Scope) -> Exchange:
    """Return the shared state of a request."""
    exchange: Exchange = scope["hasat"]
    return exchange


def header_of(scope: Scope, name: bytes) -> str:
    """Return the first header with this name in lower case, or an empty text."""
    for given, value in scope["headers"]:
        if given == name:
            return str(value, "latin-1")
    return ""


def require(access: Access) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that requires a scope and provides the caller.

    Every route that is not public requires `read` already.
    """

    async def allowed_caller(request: Request) -> Caller:
        caller = exchange_of(request.scope).caller
        if caller is None:
            raise AuthenticationError(
                msg("This operation requires an API key."), remedy=HOW_TO_AUTHENTICATE
            )
        if access not in caller.scopes:
            raise NotAllowedError(
                msg(
                    "{caller!r} lacks the scope {access!r}.",
                    caller=caller.name,
                    access=access,
                ),
                remedy=msg(
                    "Use a key created with `hasat keys create NAME --scope {access}`.",
                    access=access,
                ),
            )
        return caller

    return allowed_caller


CallerDep = Annotated[Caller, Depends(require("read"))]


def check_dataset_access(caller: Caller | None, dataset: str) -> None:
    """Reject a caller whose key is restricted to other datasets."""
    if caller is not None and not caller.may_read(dataset):
        raise DatasetNotAllowedError(
            msg("{caller!r} may not read {dataset}.", caller=caller.name, dataset=dataset),
            remedy=msg(
                "Its datasets: {datasets}. The operator changes them with `hasat keys datasets`.",
                datasets=", ".join(sorted(caller.datasets or ())),
            ),
        )


def reads(*datasets: str) -> Callable[[Endpoint], Endpoint]:
    """Declare the datasets that a route reads, for keys that are restricted to some.

    Without a name the route checks the datasets itself. A route below `/api/v1/DATASET` needs no
    declaration; any other route that has none is closed to restricted keys.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["datasets"] = frozenset(datasets)
        return endpoint

    return mark


def datasets_read_by(endpoint: object) -> frozenset[str] | None:
    """Return the datasets that a route declares; None if it declares nothing."""
    declared: frozenset[str] | None = getattr(endpoint, "datasets", None)
    return declared


def actor_of(request: HTTPConnection, kind: ActorKind | None = None) -> Actor:
    """Return the caller of a request for the audit record; `kind` replaces its own."""
    address = request.client.host if request.client else "unknown"
    exchange: Exchange | None = request.scope.get("hasat")
    caller = exchange.caller if exchange else None
    if caller is None:
        return Actor("unknown", kind or "anonymous", address)
    number = None if caller.is_local else caller.id
    return Actor(caller.name, kind or caller.kind, address, number)


def audited(action: str, access: Access = "operate") -> Any:
    """Return a dependency for a route that changes state: the caller must have the scope.

    The route's function runs inside an audited action; a refusal is recorded too. It ends before
    the response is sent.
    """

    async def audited_caller(request: Request) -> AsyncIterator[AuditEntry]:
        named = "/".join(map(str, request.path_params.values()))
        store, actor = request.app.state.store, actor_of(request)
        async with audited_action(store, actor, action, named, path=request.url.path) as entry:
            await require(access)(request)
            try:
                yield entry
            except RequestValidationError as error:
                error.__cause__ = UsageError(msg("The request has invalid values."))
                raise

    audited_caller.__dict__["audit_action"] = action
    return Depends(audited_caller, scope="function")


HOW_TO_AUTHENTICATE = msg(
    "Send `Authorization: Bearer hsk_...` with a key from `hasat keys create "
    "NAME`, or sign the request with X-Access-Key, X-Timestamp and "
    "X-Signature."
)


def declare_responses(
    example: Any,
    *errors: type[HasatError],
    media: str = "application/json",
    model: type[BaseModel] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route: an example and the problems specific to it.

    The schema of the response is that of the model; the document derives one from the example for
    a route that returns no model.
    Problems common to all routes (401, 403, 422, 429, 500, 503) are added to every operation.
    """
    content: dict[str, Any] = {media: {"example": example}}
    response: dict[str, Any] = {"content": content}
    if model is not None:
        response["model"] = model
    return {200: response, **declare_problems(*errors)}


def declare_problems(*errors: type[HasatError]) -> dict[int | str, dict[str, Any]]:
    """Return problems as OpenAPI responses; errors of one status are examples of one response."""
    declared: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        response = declared.setdefault(
            error.status,
            {
                "description": HTTPStatus(error.status).phrase,
                "content": {PROBLEM_JSON: {"schema": PROBLEM_REF, "examples": {}}},
            },
        )
        response["content"][PROBLEM_JSON]["examples"][error.code] = {
            "summary": error.title,
            "value": _example(error),
        }
    return declared


def dumps(content: Any) -> str:
    """Serialize a value as compact JSON."""
    return _encode(content)


def json_response(
    content: str, headers: Mapping[str, str] | None = None, media: str = "application/json"
) -> Response:
    """Return a response with serialized JSON."""
    return Response(content, headers=dict(headers or {}), media_type=media)


def conditional_json_response(
    request: Request,
    content: str | Callable[[], bytes],
    etag: str,
    headers: Mapping[str, str] | None = None,
    media: str = "application/json",
) -> Response:
    """Return a JSON response with an ETag, or 304 if the caller has this version already.

    Content that costs something to make is a function.
    """
    tag = f'W/"{etag}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", **(headers or {})}
    if matches_etag(request.headers, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    body = content if isinstance(content, str) else content()
    return Response(body, headers=headers, media_type=media)


def matches_etag(headers: Headers, etag: str) -> bool:
    """Return whether `If-None-Match` of a request names this version (RFC 9110, section 13)."""
    if "if-none-match" not in headers:
        return False
    tags = ",".join(headers.getlist("if-none-match"))
    if tags.strip() == "*":
        return True
    return etag.removeprefix("W/") in {tag.removeprefix("W/") for tag in _ETAG.findall(tags)}


@dataclass(frozen=True)
class LeanPath:
    """How a route responds when its path ends in a plain key and the request has no query.

    Such requests skip the framework's routing and validation, which cost more than a lookup. The
    middleware is the same, and the response is that of the route.
    """

    key: re.Pattern[str]
    """The keys that no other route could mean, and that the route would not reject."""
    respond: Callable[[Request, str], Awaitable[Response]]


def lean(
    key: str, respond: Callable[[Request, str], Awaitable[Response]]
) -> Callable[[Endpoint], Endpoint]:
    """Let a GET route, whose path ends in its only parameter, respond without the framework."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["lean_path"] = LeanPath(re.compile(key), respond)
        return endpoint

    return mark


def lean_path_of(endpoint: object) -> LeanPath | None:
    """Return what `lean` has declared for a route."""
    return getattr(endpoint, "lean_path", None)


def body_limit(size: int) -> Callable[[Endpoint], Endpoint]:
    """Accept bodies of up to `size` bytes in this route instead of one megabyte."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["body_limit"] = size
        return endpoint

    return mark


def body_limit_of(endpoint: object) -> int:
    """Return the largest body that a route accepts, in bytes."""
    limit: int = getattr(endpoint, "body_limit", ONE_MEGABYTE)
    return limit


def describe_error(error: type[HasatError]) -> str:
    """Return the docstring of an error class as one line."""
    return " ".join((error.__doc__ or error.title).split())


def _example(error: type[HasatError]) -> Mapping[str, Any]:
    return {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": describe_error(error),
        "instance": "/api/v1/status",
        "code": error.code,
        "requestId": "0f8e2c1d9ab34e57",
    }
