"""What a record says: the active state of one taxpayer in one list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hasat.sources.gib.times import earlier

INVOICE = "Invoice"
DESPATCH = "DespatchAdvice"

Aliases = tuple[tuple[str, str | None], ...]


class Part(NamedTuple):
    """What one list says about one taxpayer: only what is active, spelled as published.

    `documents` holds (alias, creation time) by document type, sorted, every alias once. `extra`
    holds elements the format does not know, by name. `flat` marks the older format, in which a
    taxpayer has as many records as aliases.
    """

    identifier: str
    title: str | None
    type: str | None
    account_type: str | None
    first_creation_time: str | None
    documents: dict[str, Aliases]
    extra: tuple[tuple[str, str], ...] = ()
    flat: bool = False


@dataclass(frozen=True)
class SetAside:
    """A User that could not be read. Without identifier, it may be anybody's."""

    raw: bytes
    offset: int
    reason: str
    identifier: str | None


def gather(
    documents: dict[str, Aliases], kind: str, active: Sequence[tuple[str, str | None]]
) -> None:
    """Add active aliases of a document type: sorted, each once, with its earliest time."""
    if len(active) == 1 and kind not in documents:
        documents[kind] = tuple(active)
        return
    times: dict[str, str | None] = dict(documents.get(kind, ()))
    for alias, created in active:
        times[alias] = earlier(times.get(alias), created)
    documents[kind] = tuple(sorted(times.items()))
