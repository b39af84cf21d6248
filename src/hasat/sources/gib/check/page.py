"""The page of the check: identifiers, and lists of customers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.pages import PageRequest
from hasat.sources.gib.check.answers import check
from hasat.sources.gib.identifiers import Malformation, kind_of

MAX_TEXT = 5000
_LINES = re.compile(r"[\r\n\t,;]+")


@dataclass(frozen=True)
class MalformedInput:
    """A text that is not an identifier, and what was likely meant."""

    input: str
    reason: str
    likely: str | None


@dataclass(frozen=True)
class CheckedIdentifiers:
    """The data of the page."""

    text: str
    items: Sequence[Mapping[str, Any]]
    malformed: Sequence[MalformedInput]
    committed_at: datetime | None
    """The time of the newest commit; None if nothing was checked."""


async def checked_identifiers(request: PageRequest) -> CheckedIdentifiers:
    """Check what was entered or pasted."""
    text = request.text("q", longest=MAX_TEXT)
    identifiers = split_identifiers(text)
    if not identifiers:
        return CheckedIdentifiers(text, [], [], None)
    async with request.store.connection() as conn:
        found = await check(conn, identifiers)
    faults = [(one, found.find_malformation(one)) for one in identifiers]
    return CheckedIdentifiers(
        text,
        [found.answer(one) for one, fault in faults if fault is None],
        [_malformed(one, fault) for one, fault in faults if fault is not None],
        found.committed_at,
    )


def split_identifiers(text: str) -> Sequence[str]:
    """Return the identifiers of a pasted text, each once.

    Spaces separate identifiers only where a part is one: 123 456 78 90 is one with spaces.
    """
    found: dict[str, None] = {}
    for line in _LINES.split(text):
        parts = line.split()
        several = len(parts) > 1 and any(kind_of(part) is not None for part in parts)
        found |= dict.fromkeys(parts if several else [line.strip()])
    return [one for one in found if one]


def _malformed(text: str, fault: Malformation) -> MalformedInput:
    return MalformedInput(text, fault.reason, fault.likely)
