"""Records of taxpayers: the part that each list has, and the merged form that is published."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from hasat.clock import ISTANBUL

INVOICE = "Invoice"
DESPATCH = "DespatchAdvice"
DOCUMENT_OF: Final = {"einvoice": INVOICE, "edespatch": DESPATCH}
"""The document type of each dataset, as the lists name it."""

_OTHER_TIME_FORMATS = ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y")
# Later than any time, so that a readable time comes before an unreadable one.
_NEVER = datetime.max  # noqa: DTZ901 - times of the lists have no zone

Aliases = tuple[tuple[str, str | None], ...]


class Part(NamedTuple):
    """The active state of one taxpayer in one list, with texts as published.

    `documents` has (alias, creation time) by document type, sorted and without duplicates. `extra`
    has elements that the format does not define, by name. `flat` marks the older format, in which
    a taxpayer has one record per alias.
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
class QuarantinedUser:
    """A User that cannot be read; without an identifier, it may belong to any taxpayer."""

    raw: bytes
    offset: int
    reason: str
    identifier: str | None


class Taxpayer(NamedTuple):
    """A taxpayer of both lists; `aliases` has (alias, PK or GB, creation time) by document."""

    identifier: str
    title: str | None
    type: str | None
    account_type: str | None
    first_creation_time: str | None
    aliases: dict[str, list[tuple[str, str, str | None]]]


def add_aliases(
    documents: dict[str, Aliases], kind: str, active: Sequence[tuple[str, str | None]]
) -> None:
    """Add active aliases of a document type: sorted, each once, with its earliest time."""
    if len(active) == 1 and kind not in documents:
        documents[kind] = tuple(active)
        return
    times = _earliest_times([*documents.get(kind, ()), *active])
    documents[kind] = tuple(sorted(times.items()))


def merge(pk: Sequence[Part], gb: Sequence[Part]) -> Taxpayer:
    """Merge all parts of a taxpayer; the order of the parts in a list makes no difference.

    Title, type and account type come from the first part that has them: PK before GB, and within a
    list the one created first. The first creation time is the earliest of all.
    """
    first, *others = [*_by_creation(pk), *_by_creation(gb)]
    identifier, title, type_, account_type, created, *_ = first
    for part in others:
        title = part.title if title is None else title
        type_ = part.type if type_ is None else type_
        account_type = part.account_type if account_type is None else account_type
        created = earlier(created, part.first_creation_time)
    aliases: dict[str, list[tuple[str, str, str | None]]] = {}
    for box, parts in (("PK", pk), ("GB", gb)):
        for kind in dict.fromkeys(kind for part in parts for kind in part.documents):
            active = _earliest_times(
                alias for part in parts for alias in part.documents.get(kind, ())
            )
            aliases.setdefault(kind, []).extend(
                (name, box, created) for name, created in active.items()
            )
    for entries in aliases.values():
        entries.sort(key=lambda entry: entry[:2])
    return Taxpayer(identifier, title, type_, account_type, created, aliases)


def _by_creation(parts: Sequence[Part]) -> Sequence[Part]:
    return sorted(
        parts,
        key=lambda part: (
            str(parse_time(part.first_creation_time) or "never"),
            part.title or "",
            part.type or "",
            part.account_type or "",
        ),
    )


def _earliest_times(aliases: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    times: dict[str, str | None] = {}
    for alias, created in aliases:
        times[alias] = earlier(times.get(alias), created)
    return times


def published_body(taxpayer: Taxpayer, dataset: str) -> dict[str, Any] | None:
    """Return what a dataset publishes of a taxpayer; None if not active in it."""
    aliases = taxpayer.aliases.get(DOCUMENT_OF[dataset])
    if not aliases:
        return None
    return {
        "identifier": taxpayer.identifier,
        "title": taxpayer.title,
        "accountType": taxpayer.account_type,
        "type": taxpayer.type,
        "firstCreationTime": taxpayer.first_creation_time,
        "aliases": [
            {"alias": alias, "type": box, "creationTime": created}
            for alias, box, created in aliases
        ],
    }


def parse_time(text: str | None) -> datetime | None:
    """Parse a time of the lists as Turkish time without zone; None if it cannot be parsed."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _parse_other_formats(text)
    if found.tzinfo is None:
        return found
    try:
        return found.astimezone(ISTANBUL).replace(tzinfo=None)
    except OverflowError:
        return None


def _parse_other_formats(text: str) -> datetime | None:
    for form in _OTHER_TIME_FORMATS:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 - times of the lists have no zone
        except ValueError:
            continue
    return None


def earlier(one: str | None, other: str | None) -> str | None:
    """Return the earlier of two times of the lists, independent of their order; None is last."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return min(one, other, key=lambda text: (parse_time(text) or _NEVER, text))
