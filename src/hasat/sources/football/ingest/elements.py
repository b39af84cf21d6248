"""Extraction of records from responses: one for each event, table line or player's match.

A record's body is the element as published. What the element lacks (the fixture that an event
belongs to) is in its key, and nothing else: the database computes typed columns from key and body.

`scopes` says where absence means removal: the events of a fixture, the tables of a league's season.
An element that cannot be read is quarantined, and then its response has no scope in that dataset.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

from hasat.sources.football.endpoints import (
    DATASETS,
    ENDPOINT_OF,
    MAX_DIGITS,
    Endpoint,
    FormError,
    Row,
    find_endpoint,
    is_number,
)
from hasat.sources.football.ingest.scopes import (
    BLOCKS,
    EARLIEST,
    GOALS,
    LATEST,
    NO_NUMBER,
    Element,
    RecordScope,
    ended_without_goals,
    fixture_scope,
    goals_scope,
    league_of,
    scopes_of_request,
)


class Block(NamedTuple):
    """One kind of details of a match that a response has as a list, perhaps an empty one."""

    fixture: int
    name: str
    is_empty: bool


@dataclass(frozen=True)
class Unreadable:
    """A part of a response that does not have the expected form."""

    dataset: str
    reason: str
    body: Any


@dataclass
class Extract:
    """The records of a response. A partial response adds missing records and changes none."""

    elements: list[Element] = field(default_factory=list)
    scopes: list[RecordScope] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    partial: bool = False
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def quarantine(self, error: FormError, body: Any) -> None:
        """Add what cannot become a record."""
        dataset, reason = error.args
        self.unreadable.append(Unreadable(dataset, reason, body))

    def add(self, dataset: str, key: str, body: Any) -> None:
        if len(key) > _MAX_KEY_LENGTH:
            raise FormError(dataset, "its identity is too long to be a key")
        self.elements.append(Element(dataset, key, body))

    def add_without_id(self, dataset: str, identity: str, body: Any) -> None:
        """Add an element without an id under its identity, numbered if that is not unique."""
        self._seen[dataset, identity] += 1
        count = self._seen[dataset, identity]
        self.add(dataset, identity if count == 1 else f"{identity}:{count}", body)


# An index entry of PostgreSQL holds 2,700 bytes, and a character may take four.
_MAX_KEY_LENGTH = 600
_MAX_STATUS_LENGTH = 100
_FIXTURES = DATASETS["fixtures"]


def extract(path: str, parameters: Mapping[str, str], response: Any) -> Extract:
    """Extract the records of a response; there are none for an endpoint that is not declared."""
    endpoint = find_endpoint(path, parameters)
    if endpoint is None:
        return Extract()
    found = Extract(partial=bool(parameters.keys() & endpoint.filters))
    rows = response if isinstance(response, list) else [response] if response else []
    read = _read_fixture if endpoint.dataset is _FIXTURES else _reader(endpoint)
    for row in rows:
        _try(found, read, parameters, row)
    fixture, block = parameters.get("fixture", ""), path.removeprefix("fixtures/")
    if block in BLOCKS and is_number(fixture) and not found.partial and not endpoint.fixed:
        found.blocks.append(Block(int(fixture), block, not rows))
    damaged = {one.dataset for one in found.unreadable}
    # An empty table means that there is none yet; an empty list of injuries is meaningful.
    if not found.partial and (found.elements or endpoint.empty_is_complete):
        found.scopes += [
            scope
            for scope in scopes_of_request(endpoint, parameters)
            if scope.dataset not in damaged
        ]
    return found


_Reader = Callable[[Extract, Mapping[str, str], Any], None]


def _reader(endpoint: Endpoint) -> _Reader:
    """Return the reader of an element: its records are added, or quarantined one by one."""

    def add(found: Extract, row: Row) -> None:
        key = endpoint.key_of(row)
        add = found.add_without_id if endpoint.numbered else found.add
        add(endpoint.dataset.name, key, row.chain[-1])

    def read(found: Extract, parameters: Mapping[str, str], element: Any) -> None:
        for row in endpoint.records(element, parameters):
            try:
                add(found, row)
            except FormError as error:
                found.quarantine(error, row.chain[-1])

    return read


def _try(found: Extract, read: _Reader, parameters: Mapping[str, str], row: Any) -> None:
    try:
        read(found, parameters, row)
    except FormError as error:
        found.quarantine(error, row)


def _read_fixture(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    """Read a match, and its details where the response has them."""
    key = Row("fixtures", (row,), parameters).number(0, "fixture.id")
    status = row["fixture"].get("status")
    if isinstance(status, dict) and len(str(status.get("short"))) > _MAX_STATUS_LENGTH:
        raise FormError("fixtures", "fixture.status.short is too long to be a code")
    if row.keys().isdisjoint(BLOCKS):
        found.add("fixtures", key, row)
        return
    # The same fixture comes with and without its blocks.
    body = {name: value for name, value in row.items() if name not in BLOCKS}
    found.add("fixtures", key, body)
    complete = all(isinstance(row.get(block), list) for block in BLOCKS)
    has_details = complete and any(row[block] for block in BLOCKS)
    for block in BLOCKS:
        rows = row.get(block)
        if not isinstance(rows, list):
            if rows:
                lost = Unreadable(f"fixture_{block}", f"{block} is not a list", rows)
                found.unreadable.append(lost)
            continue
        found.blocks.append(Block(int(key), block, not rows))
        before, known = len(found.unreadable), len(found.elements)
        for one in rows:
            _try(found, _BLOCK_READERS[block], {"fixture": key}, one)
        # live=all has current events only. An empty block means no data yet, except that without
        # events and with other details nothing happened: a withdrawn only event is removed.
        has_data = len(found.elements) > known or (block == "events" and has_details)
        if complete and has_data and len(found.unreadable) == before:
            found.scopes.append(fixture_scope(f"fixture_{block}", int(key)))
    # Without any details an empty list means no data, but a score of 0:0 means no goals.
    if complete and not has_details and ended_without_goals(row):
        found.scopes += [goals_scope(int(key), detail) for detail in GOALS]


_BLOCK_READERS = {block: _reader(ENDPOINT_OF[f"fixture_{block}"]) for block in BLOCKS}
# Numbers in bodies from which columns are computed.
_NUMBERS = {
    name: {
        **{
            ".".join(column.steps): column.type == "timestamp"
            for column in endpoint.dataset.columns
            if column.type in ("integer", "timestamp") and column.stored and not column.key_part
        },
        **dict.fromkeys(endpoint.checked, True),
    }
    for name, endpoint in ENDPOINT_OF.items()
}
_DAY = re.compile(r"(19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}")


def unreadable_values(dataset: str, body: Any) -> Iterator[str]:
    """Describe each value that its typed column cannot hold.

    The record is mirrored as published with NULL in the column: a league with one impossible date
    is still a league.
    """
    for path, is_timestamp in _NUMBERS.get(dataset, {}).items():
        value = _value(body, path)
        if value is not None and not _is_integer(value, is_timestamp=is_timestamp):
            yield _described(path, value, "is not a number that can be stored")
    if dataset == "leagues":
        yield from _of_seasons(body.get("seasons"))


def _of_seasons(seasons: Any) -> Iterator[str]:
    if seasons is not None and not isinstance(seasons, list):
        yield _described("seasons", seasons, "is not a list")
        return
    for number, season in enumerate(seasons or ()):
        path = f"seasons[{number}]"
        year = _value(season, "year")
        if not _is_integer(year) or not 1800 <= year <= 2200:
            yield _described(f"{path}.year", year, "is not a year")
        for name in ("start", "end"):
            day = _value(season, name)
            if day is not None and not _is_day(day):
                yield _described(f"{path}.{name}", day, "is not a day")


def _value(body: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(body, list) and step.isdecimal():
            body = body[int(step)] if int(step) < len(body) else None
        else:
            body = body.get(step) if isinstance(body, dict) else None
    return body


def _is_integer(value: Any, *, is_timestamp: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return EARLIEST <= value <= LATEST if is_timestamp else abs(value) < 10**MAX_DIGITS


def _is_day(value: Any) -> bool:
    if not isinstance(value, str) or _DAY.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _described(path: str, value: Any, problem: str) -> str:
    return f"{path} {problem}: {value!r}"[:200]


def quarantine_without_league(extract: Extract) -> None:
    """Quarantine records without a league, which may belong to a followed one."""
    unassigned = [element for element in extract.elements if league_of(element) == NO_NUMBER]
    if not unassigned:
        return
    reason = "its league is missing"
    extract.unreadable += [Unreadable(one.dataset, reason, one.body) for one in unassigned]
    extract.elements = [one for one in extract.elements if league_of(one) != NO_NUMBER]
    damaged = {one.dataset for one in unassigned}
    extract.scopes = [scope for scope in extract.scopes if scope.dataset not in damaged]
