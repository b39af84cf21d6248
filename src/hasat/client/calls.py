"""The requests of the client and how their responses are read, without sending anything."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

from .errors import InvalidResponseError, problem_of
from .models import ArchiveInfo, ChangePage, Check, CheckList, Digest, Record, RecordPage

T = TypeVar("T")

MAX_WAIT_SECONDS = 60.0
Value = str | int | float | bool | datetime | None


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how to read its response."""

    path: str
    read: Callable[[Any], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    seconds: float = 0.0
    """Seconds that the server may wait before it responds."""
    missing: Callable[[], T] | None = None
    """The value for a record that does not exist; without it, that is an error."""

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


def read_response(call: Call[T], response: httpx2.Response) -> T:
    """Return what the response says; raise the error that it stands for."""
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if response.status_code == 404 and call.missing is not None and _is_missing_record(document):
        return call.missing()
    raise_problem(response, document)
    try:
        return call.read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidResponseError(
            f"The response of {response.url} is not one of a Hasat server ({error!r})."
        ) from error


def raise_problem(response: httpx2.Response, document: object) -> None:
    """Raise the error of a response that is no success."""
    if response.status_code not in (200, 206):
        after = response.headers.get("Retry-After", "")
        raise problem_of(response.status_code, response.reason_phrase, document, after)


def lookup(dataset: str, key: str, as_of: datetime | None = None) -> Call[Record | None]:
    return Call(
        _path(dataset, *key.split("/")),
        lambda document: Record.read(document, key),
        {} if as_of is None else {"asOf": _text(as_of)},
        missing=lambda: None,
    )


def history(dataset: str, key: str) -> Call[list[Mapping[str, Any]]]:
    path = _path(dataset, *key.split("/"), "history")
    return Call(path, lambda document: list(document["history"]))


def page(
    dataset: str, filters: Mapping[str, Value], after: str | None, sort: str | None, limit: int
) -> Call[RecordPage]:
    query: dict[str, Any] = {name: _text(value) for name, value in filters.items()}
    query["limit"] = limit
    if after is not None:
        query["after"] = after
    if sort is not None:
        query["sort"] = sort
    return Call(_path(dataset), RecordPage.read, query)


def check(identifier: str) -> Call[Check]:
    return Call(_path("check", identifier), Check.read)


def check_many(identifiers: Iterable[str]) -> Call[CheckList]:
    return Call(_path("check"), CheckList.read, body={"identifiers": list(identifiers)})


def changes(
    dataset: str,
    after: str | None,
    only: Iterable[str] | None,
    limit: int,
    wait: float,
    before: bool,
) -> Call[ChangePage]:
    query: dict[str, Any] = {"limit": limit, "include": "before,record" if before else "record"}
    if after is not None:
        query["after"] = after
    if wait:
        query["wait"] = min(wait, MAX_WAIT_SECONDS)
    body = None if only is None else {"only": list(only)}
    return Call(_path(dataset, "changes"), ChangePage.read, query, body, seconds=wait)


def digest(dataset: str) -> Call[Digest]:
    return Call(_path(dataset, "digest"), Digest.read)


def archives(dataset: str) -> Call[list[ArchiveInfo]]:
    return Call(_path(dataset, "archives"), lambda found: [ArchiveInfo.read(one) for one in found])


def archive_path(dataset: str) -> str:
    return _path(dataset, "archives", "latest")


def _path(*parts: str) -> str:
    return "/api/v1/" + "/".join(quote(part, safe="") for part in parts)


def _text(value: Value) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_missing_record(document: object) -> bool:
    """Return whether a 404 means that there is no such record, not that there is no such path."""
    code = document.get("code") if isinstance(document, dict) else None
    return isinstance(code, str) and code != "no-such-path"
