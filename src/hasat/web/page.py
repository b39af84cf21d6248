"""The parts of a page: its address, the data it shows, its forms, and a request for it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic.alias_generators import to_camel
from starlette.requests import Request

from hasat.api.authentication import check_same_site
from hasat.errors import UsageError
from hasat.http.routes import exchange_of
from hasat.jobs import Catalogue
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store

_MAX_LENGTH = 300
_MAX_NUMBER = 2**62
_MAX_FORM_FIELDS = 50


@dataclass(frozen=True)
class PageContext:
    """Everything that pages read from."""

    store: Store
    settings: Settings
    catalogue: Catalogue
    sources: Sequence[Source]
    zone: ZoneInfo


@dataclass(frozen=True)
class PageRequest:
    """A request for a page: its values, and whether the caller has the scope operate."""

    context: PageContext
    values: Mapping[str, str]
    may_operate: bool = False

    @classmethod
    def from_http(cls, context: PageContext, request: Request) -> "PageRequest":
        """Read the values of an address and the scopes of the caller."""
        caller = exchange_of(request.scope).caller
        values = {**request.query_params, **request.path_params}
        return cls(context, values, caller is not None and "operate" in caller.scopes)

    @classmethod
    async def from_form(cls, context: PageContext, request: Request) -> "PageRequest":
        """Read a submitted form; a form of another site is refused."""
        check_same_site(request.headers)
        try:
            body = (await request.body()).decode()
            form = dict(parse_qsl(body, max_num_fields=_MAX_FORM_FIELDS))
        except ValueError as error:
            raise UsageError(
                msg("The form cannot be read."), remedy=msg("Reload the page and try again.")
            ) from error
        page_request = cls.from_http(context, request)
        return replace(page_request, values={**form, **page_request.values})

    @property
    def store(self) -> Store:
        return self.context.store

    def text(self, name: str) -> str:
        """Return a value; empty if it is missing."""
        value = self.values.get(name, "").strip()
        if "\0" in value or len(value) > _MAX_LENGTH:
            raise UsageError(
                msg("The value of {name!r} is too long or contains NUL.", name=name),
                remedy=msg(
                    "Use at most {longest} characters, none of them NUL.", longest=_MAX_LENGTH
                ),
            )
        return value

    def number(self, name: str) -> int | None:
        """Return a positive whole number; None if it is missing."""
        value = self.text(name)
        if not value:
            return None
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise UsageError(
                msg("The value of {name!r} is not a number.", name=name),
                remedy=msg("Use digits only."),
            )
        if not 0 < int(value) <= _MAX_NUMBER:
            raise UsageError(
                msg("The value of {name!r} is out of range.", name=name),
                remedy=msg("Use 1 to {largest:,}.", largest=_MAX_NUMBER),
            )
        return int(value)


@dataclass(frozen=True)
class Page:
    """A page and the same data as JSON.

    `name` is the name of its template, `section` the entry of the navigation that it belongs to.
    """

    path: str
    name: str
    load: Callable[[PageRequest], Awaitable[Any]]
    section: str

    @property
    def json_path(self) -> str:
        return f"/{self.name}.json" if self.path == "/" else f"{self.path}.json"


@dataclass(frozen=True)
class Action:
    """A form of a page; `execute` returns the address to show next.

    `audit` is the code of the action in the audit log.
    """

    path: str
    audit: str
    execute: Callable[[PageRequest], Awaitable[str]]


def to_json(value: Any) -> Any:
    """Convert a page's data to JSON values: fields in camel case, keys of mappings unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(one.name): to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {to_camel(name): to_json(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(one) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
