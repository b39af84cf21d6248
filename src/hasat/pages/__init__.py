"""Pages of the dashboard, for the platform and for sources: address, data, forms, navigation."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request

from hasat.errors import UsageError
from hasat.http.routes import Access, Caller, exchange_of
from hasat.jobs import Catalogue
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

_MAX_LENGTH = 300


@dataclass(frozen=True)
class PageContext:
    """Everything that pages read from."""

    store: Store
    settings: Settings
    catalogue: Catalogue
    sources: Sequence[Source]
    zone: ZoneInfo
    listed: frozenset[str] = frozenset()
    """The datasets whose lists the API has in every format."""


@dataclass(frozen=True)
class UploadedFile:
    """A file of a form, and its name on the computer of the sender."""

    name: str
    content: bytes


@dataclass(frozen=True)
class PageRequest:
    """A request for a page: its values, and whether the caller has the scope operate."""

    context: PageContext
    values: Mapping[str, str]
    may_operate: bool = False
    caller: Caller | None = None
    files: Mapping[str, UploadedFile] = field(default_factory=dict)

    @classmethod
    def from_http(cls, context: PageContext, request: Request) -> "PageRequest":
        """Read the values of an address and the scopes of the caller."""
        caller = exchange_of(request.scope).caller
        values = {**request.query_params, **request.path_params}
        return cls(context, values, caller is not None and "operate" in caller.scopes, caller)

    @property
    def owned(self) -> str | None:
        """Return the owner whose watch lists, deliveries, receipts are shown; None for all."""
        if self.may_operate:
            return None
        return self.caller.bucket if self.caller is not None else ""

    def may_read(self, dataset: str) -> bool:
        """Return whether the caller may read a dataset."""
        return self.caller is None or self.caller.may_read(dataset)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a long value that are not empty."""
        value = self.values.get(name, "")
        return [line.strip() for line in value.splitlines() if line.strip()]

    @property
    def store(self) -> Store:
        return self.context.store

    def text(self, name: str, *, longest: int = _MAX_LENGTH) -> str:
        """Return a value; empty if it is missing."""
        value = self.values.get(name, "").strip()
        if "\0" in value or len(value) > longest:
            raise UsageError(
                msg("The value of {name!r} is too long or contains NUL.", name=name),
                remedy=msg("Use at most {longest} characters, none of them NUL.", longest=longest),
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
        if not 0 < int(value) <= MAX_EXACT_INTEGER:
            raise UsageError(
                msg("The value of {name!r} is out of range.", name=name),
                remedy=msg("Use 1 to {largest:,}.", largest=MAX_EXACT_INTEGER),
            )
        return int(value)


@dataclass(frozen=True)
class Page:
    """A page and the same data as JSON.

    `name` is the name of its template in the folder of its owner, `section` the entry of the
    navigation that it belongs to.
    """

    path: str
    name: str
    load: Callable[[PageRequest], Awaitable[Any]]
    section: str
    datasets: tuple[str, ...] | None = None
    """The datasets that it reads, empty if it checks them itself.

    Without, it is closed to keys that are restricted to some datasets.
    """
    status: Callable[[Any], int] = lambda _: 200
    """The status of a response with its data: a page that shows an invalid value has 400."""

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
    access: Access = "operate"
    max_bytes: int = 1_000_000
    """The largest form, with its files."""


@dataclass(frozen=True)
class NavigationEntry:
    """An entry of the navigation; entries are sorted by `order`.

    The platform's own entries have the orders 10 to 40 and 80 to 100.
    """

    section: str
    label: str
    path: str
    order: int = 70
    for_operators: bool = False
    """Whether it is shown only to callers with the scope operate."""


@dataclass(frozen=True)
class SourcePages:
    """The pages of a source.

    A template is found as `<source>/<name>.html`, a static file as `<source>/<name>`. Templates
    extend `layout` and may import the platform's `parts.html`.
    """

    pages: tuple[Page, ...]
    templates: Traversable
    navigation: tuple[NavigationEntry, ...] = ()
    actions: tuple[Action, ...] = ()
    static: Traversable | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by kind and value, in addition to those of the platform.

    The kind `field` has the labels of fields of its records, by the name of the field.
    """
    records: Mapping[str, str] = field(default_factory=dict)
    """The addresses of its own pages of records by dataset, as `/rates/{key}`.

    The records of other datasets are shown on the platform's page.
    """
    lists: Mapping[str, str] = field(default_factory=dict)
    """The addresses of its own lists of the datasets that the page of records does not show."""
    searches: Mapping[str, str] = field(default_factory=dict)
    """The pages that search for a text, by label: an address that the text is added to."""
