"""The OpenAPI document and the page at /docs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment, PackageLoader
from starlette.responses import HTMLResponse, JSONResponse, Response

from hasat.api import problems
from hasat.api.authentication import is_public
from hasat.api.problems import problem_types
from hasat.errors import (
    AuthenticationError,
    DatabaseError,
    NotAllowedError,
    TooManyRequestsError,
    UsageError,
)
from hasat.http.routes import ParameterError, Problem, declare_problems

_METHODS = ("get", "post", "put", "patch", "delete")
# Problems that any operation can respond with.
_COMMON = declare_problems(
    UsageError,
    ParameterError,
    AuthenticationError,
    problems.CredentialsMalformedError,
    problems.KeyUnknownError,
    problems.KeyExpiredError,
    problems.KeyRevokedError,
    problems.SignatureWrongError,
    problems.TimestampOutsideError,
    NotAllowedError,
    problems.HostNotAllowedError,
    problems.OriginNotAllowedError,
    problems.BodyTooLargeError,
    problems.InvalidInputError,
    TooManyRequestsError,
    problems.UnexpectedError,
    DatabaseError,
)
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key from `hasat keys create`.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Access-Key",
        "description": (
            "With X-Timestamp (seconds since 1970) and X-Signature: hex HMAC-SHA256 "
            'of "METHOD\\nPATH?QUERY\\nTIMESTAMP".'
        ),
    },
}


def openapi_document_of(
    app: FastAPI, *, open_to_all: bool, invalid_input_status: Callable[[str], int]
) -> dict[str, Any]:
    """Return FastAPI's document with problems and security schemes on each operation."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
        )
        components = document.setdefault("components", {})
        components["securitySchemes"] = _SECURITY_SCHEMES
        components["responses"] = {f"problem-{key}": value for key, value in _COMMON.items()}
        schemas = components.setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = Problem.model_json_schema(
            mode="serialization", ref_template="#/components/schemas/{model}"
        )
        schemas |= {**problem.pop("$defs"), "Problem": problem}
        for path, _, operation in _operations(document):
            _derive_schemas(operation)
            _declare_problems(path, operation, invalid_input_status(path))
            if not is_public(path):
                schemes: list[dict[str, list[str]]] = [{name: []} for name in _SECURITY_SCHEMES]
                operation["security"] = [{}, *schemes] if open_to_all else schemes
        app.openapi_schema = document
    return app.openapi_schema


def _declare_problems(path: str, operation: dict[str, Any], invalid_input: int) -> None:
    responses: dict[str, Any] = operation["responses"]
    common = {403, 429, 500}
    if not is_public(path):
        common |= {401, 503}
    if path.startswith("/api/v1/"):
        common.add(400)
    if "requestBody" in operation:
        common |= {400, 413}
    if "application/json" in responses.get("422", {}).get("content", {}):
        # FastAPI's own format, which is never sent.
        del responses["422"]
    if operation.get("parameters") or "requestBody" in operation:
        common.add(invalid_input)
    for status in common:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/problem-{status}"})
    operation["responses"] = dict(sorted(responses.items()))


def _derive_schemas(operation: dict[str, Any]) -> None:
    """Derive the schemas of JSON responses without a model from their examples."""
    for response in operation["responses"].values():
        content = response.get("content", {}).get("application/json", {})
        if "example" in content and not content.get("schema"):
            schema = schema_of(content["example"])
            # A response itself is never null; what is inside may be.
            if schema:
                schema["type"] = schema["type"][0]
            content["schema"] = schema


_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(example: Any) -> dict[str, Any]:
    """Return a JSON schema that an example and values like it have.

    What an upstream published may lack a field or have null instead of it.
    """
    if isinstance(example, Mapping):
        properties = {name: schema_of(value) for name, value in example.items()}
        return {"type": ["object", "null"], "properties": properties}
    if isinstance(example, list | tuple):
        items = schema_of(example[0]) if example else {}
        return {"type": ["array", "null"], "items": items}
    if example is None:
        return {}
    return {"type": [_SCALARS.get(type(example), "string"), "null"]}


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield path, method, methods[method]


router = APIRouter(include_in_schema=False)
_templates = Environment(
    loader=PackageLoader("hasat.api"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def _groups(
    document: Mapping[str, Any],
) -> Sequence[tuple[str, Sequence[tuple[str, str, dict[str, Any]]]]]:
    """Return the operations by their first tag, those of the whole server first."""
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, method, operation in _operations(document):
        tag = next(iter(operation.get("tags") or ["general"]))
        groups.setdefault(tag, []).append((path, method, operation))
    return list(groups.items())


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _kind(schema: Mapping[str, Any]) -> str:
    """Describe a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(one) for one in choices if one != {"type": "null"}))
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "array":
        return f"list of {_kind(schema.get('items', {})) or 'values'}"
    return str(schema.get("format") or kind or "")


def _curl(operation: Mapping[str, Any], method: str, path: str) -> str:
    """Return a call of an operation with its required parameters."""
    needed = [
        one["name"]
        for one in operation.get("parameters", ())
        if one.get("required") and one["in"] == "query"
    ]
    query = "&".join(f"{name}={name.upper()}" for name in needed)
    parts = ["curl"]
    if method != "get":
        parts.append(f"-X {method.upper()}")
    media = next(iter(operation.get("requestBody", {}).get("content", {})), None)
    if media is not None:
        parts += [f"-H 'Content-Type: {media}'", "-d @body"]
    parts.append(f'"$HASAT{path}{"?" if query else ""}{query}"')
    return " ".join(parts)


_templates.filters |= {"anchor": _anchor, "kind": _kind, "curl": _curl}


@router.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


@router.get("/docs")
async def docs_page(request: Request) -> Response:
    document = request.app.openapi()
    page = _templates.get_template("docs.html").render(
        info=document["info"],
        groups=_groups(document),
        problem_types=list(problem_types().values()),
    )
    return HTMLResponse(page)


@router.get("/docs.css")
async def docs_style() -> Response:
    return Response(_templates.get_template("docs.css").render(), media_type="text/css")
