"""How an endpoint of API-Football is declared, and how its responses are read.

A declaration names the parameters, where the records are in a response, and what makes their keys.
The reader, the table, the scopes, the request plan, the documentation and the simulated response
follow from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from hasat.feed.columns import Column, Type
from hasat.feed.dataset import Dataset

SOURCE = "football"

FORMAT_PARAMETERS = {"timezone", "page"}
"""Parameters that change how a response is written or which part of it is sent."""
MAX_DIGITS = 18
_HOLDERS = ("player", "coach")


class FormError(Exception):
    """An element cannot become a record; has the dataset and the reason."""


@dataclass(frozen=True)
class Row:
    """A record in a response: the objects around it from the outside in, and the request."""

    dataset: str
    chain: tuple[Any, ...]
    parameters: Mapping[str, str]

    def at(self, level: int, path: str) -> Any:
        """Return the value at a path of one of the objects; raise FormError if it is missing."""
        value = self.chain[level]
        for step in path.split(".") if path else ():
            if not isinstance(value, dict) or step not in value:
                raise FormError(self.dataset, f"{path} is missing")
            value = value[step]
        return value

    def number(self, level: int, path: str) -> str:
        value = self.at(level, path)
        if not isinstance(value, int) or isinstance(value, bool):
            problem = f"{path or 'the element'} is not an integer: {value!r}"
            raise FormError(self.dataset, problem[:200])
        if abs(value) >= 10**MAX_DIGITS:
            raise FormError(self.dataset, f"{path or 'the element'} is too large")
        return str(value)

    def optional(self, level: int, path: str) -> Any:
        value = self.chain[level]
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True)
class KeyPart:
    """A part of a record's key: `level` 0 is the element of the response, -1 the record itself."""

    path: str = ""
    level: int = -1

    def read(self, row: Row) -> str | None:
        """Return the part; None leaves it out."""
        raise NotImplementedError


class Number(KeyPart):
    """A required integer."""

    def read(self, row: Row) -> str:
        return row.number(self.level, self.path)


class Text(KeyPart):
    """A required text."""

    def read(self, row: Row) -> str:
        value = row.at(self.level, self.path)
        if not isinstance(value, str) or not value:
            problem = f"{self.path or 'the element'} is not a string: {value!r}"
            raise FormError(row.dataset, problem[:200])
        return value


class Whatever(KeyPart):
    """Whatever the record has there, even nothing."""

    def read(self, row: Row) -> str:
        return str(row.optional(self.level, self.path))


class NumberIfAny(KeyPart):
    """An integer, or nothing where it is null or missing."""

    def read(self, row: Row) -> str:
        if row.optional(self.level, self.path) is None:
            return ""
        return row.number(self.level, self.path)


class Player(KeyPart):
    """The id of a player, or the name where the id is 0 or missing: several have no id."""

    def read(self, row: Row) -> str:
        return _player(row.at(self.level, self.path))


class PlayerIfAny(KeyPart):
    """The id of a player, who may be missing altogether."""

    def read(self, row: Row) -> str:
        return _player(row.optional(self.level, self.path))


class IdOrName(KeyPart):
    """The id of an object, or its name where the id is 0 or missing; it has one of them."""

    def read(self, row: Row) -> str:
        one = row.at(self.level, self.path)
        if isinstance(one, dict):
            if one.get("id"):
                return row.number(self.level, f"{self.path}.id".lstrip("."))
            name = one.get("name")
            if isinstance(name, str) and name:
                return f"-{name}"
        raise FormError(row.dataset, f"{self.path or 'the element'} has neither id nor name")


class Minute(KeyPart):
    """The minute of an event with its added time."""

    def read(self, row: Row) -> str:
        time = row.at(self.level, self.path)
        elapsed, extra = row.at(self.level, f"{self.path}.elapsed"), time.get("extra")
        return f"{elapsed}" if extra is None else f"{elapsed}+{extra}"


class Parameter(KeyPart):
    """A required numeric parameter of the request."""

    def read(self, row: Row) -> str:
        value = row.parameters.get(self.path, "")
        if not is_number(value):
            raise FormError(row.dataset, f"the response does not name its {self.path}")
        return value


class ParameterOrBlank(KeyPart):
    """A numeric parameter of the request; empty in requests that cover all its values."""

    def read(self, row: Row) -> str:
        value = row.parameters.get(self.path, "")
        return value if is_number(value) else ""


class ParameterIfAny(KeyPart):
    """A parameter of the request that only some requests have."""

    def read(self, row: Row) -> str | None:
        return row.parameters.get(self.path)


class Holder(KeyPart):
    """Who a request is about: `player-7` or `coach-7`."""

    def read(self, row: Row) -> str:
        for name in _HOLDERS:
            if is_number(row.parameters.get(name, "")):
                return f"{name}-{row.parameters[name]}"
        raise FormError(row.dataset, "the response does not name its player or coach")


class HolderOfMany(KeyPart):
    """Who an element is about, in the response to a request for several: `player-7`."""

    def read(self, row: Row) -> str:
        for name in _HOLDERS:
            if f"{name}s" in row.parameters:
                return f"{name}-{row.number(self.level, self.path)}"
        raise FormError(row.dataset, "the response does not name its players or coaches")


@dataclass(frozen=True)
class Rule:
    """When absence means removal: a complete response to a request with just these parameters.

    The scope is all records with the values of the parameters in the named columns; `day_of` is the
    path of a timestamp whose day, in UTC, is compared instead.
    """

    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    day_of: str | None = None
    by_holder: bool = False
    """Whether a column holds a parameter with its name, such as `player-7`."""


Unit = Literal["api", "season", "team", "player", "fixture", "country", "league", "pair"]
"""What one request is about; `api` stands for everything that the API has."""


@dataclass(frozen=True)
class Plan:
    """When the optional data of an endpoint are fetched.

    `every` is the age at which a unit is fetched again, None for once. `settle` are times after the
    end of a match of the season at which the API has corrected its figures. `before` and `after`
    restrict matches to those around their kick-off.
    """

    unit: Unit
    every: timedelta | None
    settle: tuple[timedelta, ...] = ()
    before: timedelta = timedelta(0)
    after: timedelta = timedelta(0)
    pages: int = 1
    """How many pages a unit usually has; for the price."""
    live: bool = False
    """Whether it is fetched while matches are in play, at the interval of the live mode."""


@dataclass(frozen=True)
class Endpoint:
    """One endpoint of the API, or one form of it, and the dataset that its records belong to."""

    path: str
    dataset: Dataset
    key: tuple[KeyPart, ...]
    rows: tuple[str, ...] = ()
    """The paths of the lists in which the records are, from the outside in; "" is a list itself."""
    numbered: bool = False
    """Whether records without an id of their own may have the same key, and are numbered."""
    rules: tuple[Rule, ...] = ()
    empty_is_complete: bool = False
    """Whether an empty response says that there are no records, not that there are none yet."""
    fixed: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Parameters of this form of the endpoint."""
    given: str = ""
    """A parameter with any value that only this form has."""
    filters: frozenset[str] = frozenset()
    """Parameters that restrict a response to parts of each element."""
    coverage: tuple[str, ...] = ()
    """The flag in the coverage of a season that says whether the API has these data."""
    plan: Plan | None = None
    """For optional data, which are fetched only if the operator switches them on."""
    option: str = ""
    """The name by which the operator switches it on; by default that of the dataset."""
    checked: tuple[str, ...] = ()
    """Paths of timestamps to check besides the typed columns."""
    example: Any = field(default=None, hash=False)
    """An element of a response for documentation and simulator, with {names} for ids."""

    @property
    def name(self) -> str:
        """Return the path with its fixed parameters."""
        fixed = "&".join(f"{name}={value}" for name, value in self.fixed.items()) or self.given
        return f"{self.path}?{fixed}" if fixed else self.path

    def matches(self, path: str, parameters: Mapping[str, str]) -> bool:
        """Whether this form of the endpoint responds to a request."""
        is_form = not self.given or self.given in parameters
        return path == self.path and is_form and self.fixed.items() <= parameters.items()

    @property
    def is_form(self) -> bool:
        """Whether its parameters distinguish it from another form of the endpoint."""
        return bool(self.fixed or self.given)

    @property
    def option_name(self) -> str:
        return self.option or self.dataset.name

    def key_of(self, row: Row) -> str:
        """Return the key of a record; raise FormError if a part of it is missing."""
        return ":".join(value for part in self.key if (value := part.read(row)) is not None)

    def records(self, element: Any, parameters: Mapping[str, str]) -> Sequence[Row]:
        """Return the records of an element; raise FormError if it has no list of them."""
        row = Row(self.dataset.name, (element,), parameters)
        for part in self.key:
            if part.level == 0:
                part.read(row)
        rows = [row]
        for number, path in enumerate(self.rows):
            name = self.rows[number] or self.rows[number - 1]
            rows = [
                Row(row.dataset, (*row.chain, item), parameters)
                for row in rows
                for item in _items(row, path, name)
            ]
        return rows

    def rule_for(self, parameters: Mapping[str, str]) -> Rule | None:
        """Return the rule for a request with these parameters, if its response is complete."""
        given = parameters.keys() - FORMAT_PARAMETERS - self.fixed.keys()
        return next((rule for rule in self.rules if rule.columns.keys() == given), None)


def column(name: str, type_: Type = "text", path: str | tuple[str, ...] | None = None) -> Column:
    """Return a typed column that is computed from the body."""
    return Column(name, type_, path)


def key_column(name: str, part: int, type_: Type = "integer") -> Column:
    """Return a typed column that is a part of the key."""
    return Column(name, type_, key_part=(":", part))


def stored(*columns: Column) -> tuple[Column, ...]:
    """Return columns that the migrations made in the table."""
    return tuple(replace(one, stored=one.name) for one in columns)


_NAMED = ("player", "coach", "team", "venue", "league", "country")


def dataset(name: str, summary: str, *columns: Column) -> Dataset:
    return Dataset(name, SOURCE, summary, columns=columns, title=_title)


def _title(body: Any) -> str | None:
    """Return the teams of a match, else the first name that the element has."""
    if "home" in (teams := body.get("teams") or {}):
        return f"{teams['home']['name']} – {teams['away']['name']}"
    names = [part.get("name") for one in _NAMED if isinstance(part := body.get(one), dict)] + [
        body.get("name")
    ]
    return " · ".join([str(name) for name in names if name][:2])


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _items(row: Row, path: str, name: str) -> Sequence[Any]:
    items = row.at(-1, path)
    if not isinstance(items, list):
        raise FormError(row.dataset, f"{name} is not a list")
    return items


def _player(player: Any) -> str:
    if not isinstance(player, dict):
        return "-"
    return str(player["id"]) if player.get("id") else f"-{player.get('name') or ''}"
