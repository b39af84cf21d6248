"""One User's bytes and what they say: the active state of one taxpayer in one list.

Almost every record is written by the same machine in the same way. `read_piece` knows exactly that
way and nothing else: what its pattern matches in full is well-formed XML in which every byte is
accounted for. All the rest (entities, comments, another order, the flat format of the older lists)
goes through expat (`markup.py`).
"""

import re
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


_SPACE = r"[ \t\r\n]*+"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
# No '>', as it may end a forbidden ']]>'; no CR, which XML turns into LF; no byte that begins the
# characters U+FFFE and U+FFFF, which XML forbids.
_TITLE = r"[^<>&\x00-\x08\x0b-\x1f\xef]*+"
# Printable ASCII without markup: nothing to trim, nothing to decode.
_ALIAS = r"[!-%'-;=?-~]++"
_WORD = r"[A-Z]++"
_KIND = r"[A-Za-z]++"

_ALIAS_START = (
    rf"<Alias>{_SPACE}<Name>({_ALIAS})</Name>{_SPACE}"
    rf"<CreationTime>({_TIME})</CreationTime>{_SPACE}"
)
_ALIAS_END = rf"</Alias>{_SPACE}"
_CLOSED = rf"(<DeletionTime>{_TIME}</DeletionTime>{_SPACE})?"
_ANY_ALIAS = _ALIAS_START + _CLOSED + _ALIAS_END
_UNHEARD_ALIAS = _ANY_ALIAS.replace("(", "(?:")

_ONE_ALIAS = rf'<Document type="({_KIND})">{_SPACE}{_ALIAS_START}{_ALIAS_END}</Document>{_SPACE}'

# All but one record in ten have one or two documents of one open alias each.
_RECORD = re.compile(
    (
        rf"{_SPACE}<User>{_SPACE}<Identifier>([0-9]{{10,11}})</Identifier>{_SPACE}"
        rf"<Title>({_TITLE})</Title>{_SPACE}<Type>({_WORD})</Type>{_SPACE}"
        rf"<FirstCreationTime>({_TIME})</FirstCreationTime>{_SPACE}"
        rf"(?:<AccountType>({_WORD})</AccountType>{_SPACE})?<Documents>{_SPACE}"
        rf"(?:{_ONE_ALIAS}(?:{_ONE_ALIAS})?|(.*))</Documents>{_SPACE}"
    ).encode(),
    re.DOTALL,
).fullmatch
_DOCUMENTS = re.compile(
    rf'(?:<Document type="{_KIND}">{_SPACE}(?:{_UNHEARD_ALIAS})*</Document>{_SPACE})*'.encode()
).fullmatch
_DOCUMENT = b'<Document type="'
_ALIASES = re.compile(_ANY_ALIAS.encode()).findall


def read_piece(piece: bytes) -> Part | None:
    """The part in a record without its closing tag, if it is written in the usual way."""
    match = _RECORD(piece)
    if match is None:
        return None
    identifier, title, type_, first, account, kind, alias, created, k2, a2, c2, others = (
        match.groups()
    )
    documents: dict[str, Aliases]
    if others is None:
        documents = {kind.decode(): ((alias.decode(), created.decode()),)}
        if k2 is not None:
            gather(documents, k2.decode(), ((a2.decode(), c2.decode()),))
    elif _DOCUMENTS(others):
        documents = {}
        for document in others.split(_DOCUMENT)[1:]:
            name, _, inside = document.partition(b'"')
            active = [
                (alias.decode(), time.decode()) for alias, time, end in _ALIASES(inside) if not end
            ]
            if active:
                gather(documents, name.decode(), active)
    else:
        return None
    try:
        told = title.decode()
    except UnicodeDecodeError:
        return None
    return Part(
        identifier.decode(),
        told,
        type_.decode(),
        None if account is None else account.decode(),
        first.decode(),
        documents,
    )


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
