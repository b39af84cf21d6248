"""Quarantined records, and the values that PostgreSQL can and cannot store."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import AsyncConnection

MAX_DEPTH = 64
"""Deeper nesting than any upstream publishes; JSON encoders and PostgreSQL recurse over it."""

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
# From here on Python and PostgreSQL write the same number differently.
_WHOLE_FROM = 1e16
_MAX_DIGITS = 1000


def storable(value: Any, depth: int = 0) -> Any:
    """Return the value with its numbers as PostgreSQL writes them.

    Raise ValueError if the database would refuse it or return something else.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    match value:
        case str():
            if found := _UNSTORABLE.search(value):
                raise ValueError(f"the character {found[0]!r}, which no text can have")
            return value
        case dict():
            return {
                storable(name, depth + 1): storable(one, depth + 1) for name, one in value.items()
            }
        case list():
            return [storable(one, depth + 1) for one in value]
        case bool():
            return value
        case float():
            return _number(value)
        case int() if abs(value) >= 10**_MAX_DIGITS:
            raise ValueError(f"a number of more than {_MAX_DIGITS} digits")
    return value


def storable_text(text: str) -> str:
    """Return the text with U+FFFD for every character that PostgreSQL refuses."""
    return _UNSTORABLE.sub("\ufffd", text)


def _number(number: float) -> float | int:
    if not math.isfinite(number):
        raise ValueError(f"the number {number}")
    if abs(number) >= _WHOLE_FROM:
        return int(Decimal(repr(number)))
    # PostgreSQL has no negative zero.
    return number + 0.0


class QuarantinedRecord(NamedTuple):
    """Part of a response that could not be read: its position, the reason and its likely key."""

    origin: str
    reason: str
    content: bytes
    key: str | None = None


async def quarantine(
    conn: AsyncConnection[Any], source: str, run: int | None, records: Iterable[QuarantinedRecord]
) -> None:
    """Store records in raw.set_aside, in the caller's transaction."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO raw.set_aside (source, run, origin, reason, content, key)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (
                    source,
                    run,
                    storable_text(record.origin),
                    storable_text(record.reason),
                    record.content,
                    None if record.key is None else storable_text(record.key),
                )
                for record in records
            ],
        )
