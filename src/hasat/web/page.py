"""What a page is: an address, what it shows, and how it is told; and what a form may do."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from hasat.errors import UsageError
from hasat.jobs import Catalogue
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store

_LONGEST = 300
_LARGEST = 2**62


@dataclass(frozen=True)
class House:
    """What the pages look at."""

    store: Store
    settings: Settings
    catalogue: Catalogue
    sources: Sequence[Source]
    zone: ZoneInfo


@dataclass(frozen=True)
class Asked:
    """One question to a page: the values of its address, and whether the reader may operate."""

    house: House
    values: Mapping[str, str]
    may_operate: bool = False

    @property
    def store(self) -> Store:
        return self.house.store

    def text(self, name: str) -> str:
        """A value of the address; empty if it is not given."""
        value = self.values.get(name, "").strip()
        if "\0" in value or len(value) > _LONGEST:
            raise UsageError(
                msg("The value of {name!r} cannot be looked for.", name=name),
                remedy=msg("Use at most {longest} characters, none of them NUL.", longest=_LONGEST),
            )
        return value

    def number(self, name: str) -> int | None:
        """A whole number of the address, from 1; None if it is not given."""
        value = self.text(name)
        if not value:
            return None
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise UsageError(
                msg("The value of {name!r} is not a number.", name=name), remedy=msg("Correct it.")
            )
        if not 0 < int(value) <= _LARGEST:
            raise UsageError(
                msg("The value of {name!r} is out of range.", name=name),
                remedy=msg("Use 1 to {largest:,}.", largest=_LARGEST),
            )
        return int(value)


@dataclass(frozen=True)
class Page:
    """A page and its JSON twin: one function reads what both show.

    `name` is the name of its template and of its texts, `place` the entry of the navigation that
    it belongs to.
    """

    path: str
    name: str
    data: Callable[[Asked], Awaitable[Any]]
    place: str

    @property
    def twin(self) -> str:
        return f"/{self.name}.json" if self.path == "/" else f"{self.path}.json"


@dataclass(frozen=True)
class Action:
    """What a form of a page does; it answers with the address to go to then.

    `audit` is the code of the action in the audit record.
    """

    path: str
    audit: str
    do: Callable[[Asked], Awaitable[str]]
