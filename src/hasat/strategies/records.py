"""The records of a response, and those that cannot be read."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Record
from hasat.store.quarantine import QuarantinedRecord, storable

ToRecord = Callable[[Any], "Record | tuple[str, Any]"]


class UnreadableRecordError(ValueError):
    """A record cannot be read; with its key, the record of the mirror is protected by name."""

    def __init__(self, reason: str, key: str | None = None) -> None:
        super().__init__(reason)
        self.key = key


def record_of(key: Any, body: Any) -> Record:
    """Return a record; raise ValueError if PostgreSQL could not store its key or its body."""
    if not isinstance(key, str) or not key:
        raise UnreadableRecordError(f"the key {key!r} is not a text")
    storable(key)
    try:
        return Record(key, canonical(storable(body)))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableRecordError(str(error), key) from error


def as_record(element: Any) -> Record:
    """Return the element as a record: a Record, or a pair of key and body."""
    if isinstance(element, Record):
        return record_of(element.key, json.loads(element.body))
    key, body = element
    return record_of(key, body)


@dataclass
class ParsedRecords:
    """The records of a response by key, and those that could not be read."""

    records: dict[str, Record] = field(default_factory=dict)
    unreadable: list[QuarantinedRecord] = field(default_factory=list)

    @property
    def unreadable_keys(self) -> set[str]:
        return {one.key for one in self.unreadable if one.key is not None}

    @property
    def has_unknown(self) -> bool:
        """Whether a record could not be read so far that not even its key is known."""
        return any(one.key is None for one in self.unreadable)


def parse_records(elements: Iterable[Any], to_record: ToRecord, origin: str) -> ParsedRecords:
    """Read the elements one by one; one that raises is quarantined and does not stop the others.

    An error of the iteration itself is not caught: then the response cannot be read at all.
    """
    found = ParsedRecords()
    for number, element in enumerate(elements, start=1):
        try:
            record = to_record(element)
            if not isinstance(record, Record):
                record = as_record(record)
            known = found.records.setdefault(record.key, record)
            if known != record:
                raise UnreadableRecordError("the key is repeated with another body", record.key)
        except Exception as error:  # noqa: BLE001 - what an upstream sends may fail in any way
            found.unreadable.append(
                QuarantinedRecord(
                    f"{origin}, record {number}",
                    f"{type(error).__name__}: {error}",
                    _verbatim(element),
                    getattr(error, "key", None),
                )
            )
    return found


def _verbatim(element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    try:
        return json.dumps(element, ensure_ascii=False, default=repr).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):
        return repr(element).encode("utf-8", "replace")
