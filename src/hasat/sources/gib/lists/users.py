"""Parsing of User elements into parts, with every doubt about their completeness.

A misspelt, misplaced or empty element reads as an absent one, and an absent element looks like a
removal. So everything that a User has beyond the format, or lacks, is a doubt. A record with a
doubt is quarantined, unless enough records of the list share the doubt to make it the format
(`agreed_doubts`).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from hasat.sources.gib.lists.markup import ONCE_PER_USER, Element, UnreadableError
from hasat.sources.gib.lists.records import (
    DESPATCH,
    INVOICE,
    Aliases,
    Part,
    add_aliases,
    parse_time,
)

IDENTIFIER: Final = re.compile(r"[0-9]{10,11}").fullmatch
MAX_TITLE, MAX_ALIAS, MAX_WORD = 1_000, 300, 60
"""At least four times the longest published values."""

_ODD_IDENTIFIER: Final = re.compile(r"\S{1,40}").fullmatch
_KNOWN_KINDS: Final = frozenset((INVOICE, DESPATCH))
_ATTRIBUTES: Final = {"Document": frozenset(("type",))}
_FIELDS: Final = frozenset(
    (
        "Identifier",
        "Title",
        "Type",
        "FirstCreationTime",
        "AccountType",
        "AliasCreationTime",
        "DeletionTime",
    )
)
_ALWAYS: Final = ("Title", "Type", "FirstCreationTime")
_ONLY_FLAT: Final = ("AliasCreationTime", "DeletionTime")
_LONGEST: Final = {"Title": MAX_TITLE}
# A doubt that one in three records share, and at least ten, is the format.
_AGREED_SHARE, _AGREED_RECORDS = 3, 10


class ReadUser(NamedTuple):
    """A parsed User, and the doubts about its completeness."""

    part: Part
    doubts: tuple[str, ...]

    @property
    def owner(self) -> str | None:
        """Return the identifier, if it is well-formed."""
        return self.part.identifier if IDENTIFIER(self.part.identifier) else None


def agreed_doubts(doubts: Mapping[str, int], records: int) -> frozenset[str]:
    """Return the doubts that at least a third of a list's records share.

    The guard's limits on removed and modified records add up to less than a third, so removals
    caused by an agreed doubt are held.
    """
    enough = max(_AGREED_RECORDS, records / _AGREED_SHARE)
    return frozenset(doubt for doubt, count in doubts.items() if count >= enough)


def read_user(user: Element) -> ReadUser:
    """Parse a User in any form; raise UnreadableError where its meaning is not clear."""
    if user.contains_user:
        raise UnreadableError("it contains another User")
    identifier = _identifier(user)
    repeated = Counter(child.name for child in user.children if child.name in ONCE_PER_USER)
    if any(count > 1 for count in repeated.values()):
        raise UnreadableError("it has parts of two Users")
    doubts = _Doubts()
    fields: dict[str, str] = {}
    extra: list[tuple[str, str]] = []
    aliases: list[tuple[str, Element]] = []
    flat: list[Element] = []
    doubts.container(user)
    if user.hides_elements:
        doubts.append("a comment or an instruction in it contains elements")
    for child in user.children:
        if child.name in _FIELDS and child.name not in fields:
            fields[child.name] = _plain(child, identifier)
            doubts.leaf(child, _LONGEST.get(child.name, MAX_WORD))
        elif child.name == "Documents":
            aliases += _documents(child, extra, doubts)
        elif child.name == "Alias":
            flat.append(child)
        elif child.name != "Identifier":
            extra.append((child.name, child.text))
            doubts.unknown(child, user)
    doubts.fields(identifier, fields, flat=bool(flat), documented="Documents" in repeated)
    active: dict[str, list[tuple[str, str | None]]] = {}
    for kind, alias in aliases:
        active.setdefault(kind, []).extend(_active(alias, identifier, extra, doubts))
    if flat:
        # The older format has invoices only, with an alias's times as siblings of the alias.
        sibling = fields.get("AliasCreationTime", "").strip() or None
        found = [
            (name, created or sibling)
            for alias in flat
            for name, created in _active(alias, identifier, extra, doubts, flat=True)
        ]
        if not fields.get("DeletionTime", "").strip():
            active.setdefault(INVOICE, []).extend(found)
    documents: dict[str, Aliases] = {}
    for kind, some in active.items():
        if some:
            add_aliases(documents, kind, some)
    part = Part(
        identifier,
        fields.get("Title"),
        fields.get("Type", "").strip() or None,
        fields.get("AccountType", "").strip() or None,
        fields.get("FirstCreationTime", "").strip() or None,
        documents,
        tuple(extra),
        bool(flat),
    )
    return ReadUser(part, tuple(dict.fromkeys(doubts)))


def remains_of_user(element: Element) -> bool:
    """Return whether an element other than User may be the remains of one."""
    return any(
        one.name in _FIELDS or one.name in ("Documents", "Document", "Alias")
        or any(IDENTIFIER(number) for number in re.findall(r"[0-9]+", one.text))
        for one in _descendants(element)
    )  # fmt: skip


def _descendants(element: Element) -> Iterator[Element]:
    waiting = [element]
    while waiting:
        yield (one := waiting.pop())
        waiting += one.children


class _Doubts(list[str]):
    """The doubts about one record, as texts.

    Agreed doubts are stored with the list, so rewording one quarantines records after an upgrade.
    """

    def container(self, element: Element) -> None:
        """Check an element that contains others."""
        self._attributes(element)
        if element.text.strip():
            self.append(f"there is text in its {_short(element.name)}")

    def leaf(self, element: Element, longest: int) -> None:
        """Check an element that contains text."""
        self._attributes(element)
        if len(element.text) > longest:
            self.append(f"its {element.name} has more than {longest} characters")

    def unknown(self, element: Element, parent: Element) -> None:
        self.append(f"{_short(element.name)!r} is not known in {_short(parent.name)}")

    def missing(self, what: str) -> None:
        self.append(f"it has no {what}")

    def fields(
        self, identifier: str, fields: Mapping[str, str], *, flat: bool, documented: bool
    ) -> None:
        """Check the fields that a User must have, and those that it must not have."""
        if not IDENTIFIER(identifier):
            self.append("its Identifier has not 10 or 11 digits")
        for name in _ALWAYS:
            if not fields.get(name, "").strip() and not (flat and name != "Title"):
                self.missing(name)
        if not flat and not documented:
            self.missing("Documents")
        for name in _ONLY_FLAT:
            if name in fields and not flat:
                self.append(f"its {name} has no alias beside it")
        if "DeletionTime" in fields:
            self.deletion(fields["DeletionTime"])

    def deletion(self, text: str) -> None:
        if parse_time(text.strip()) is None:
            self.append("a DeletionTime is not a time")

    def _attributes(self, element: Element) -> None:
        known: Collection[str] = _ATTRIBUTES.get(element.name, ())
        for name in element.attributes:
            if name not in known:
                self.append(
                    f"its {_short(element.name)} has the unknown attribute {_short(name)!r}"
                )


def _documents(
    documents: Element, extra: list[tuple[str, str]], doubts: _Doubts
) -> Iterator[tuple[str, Element]]:
    """Yield each alias with the type of its document."""
    doubts.container(documents)
    if not documents.children:
        doubts.missing("Document")
    for document in documents.children:
        if document.name != "Document":
            extra.append((document.name, document.text))
            doubts.unknown(document, documents)
            continue
        doubts.container(document)
        kind = document.attributes.get("type", "").strip()
        if kind not in _KNOWN_KINDS:
            doubts.append(f"the Document type {_short(kind)!r} is not known")
        if not document.children:
            doubts.missing("Alias")
        for inner in document.children:
            if inner.name == "Alias":
                yield kind, inner
            else:
                extra.append((inner.name, inner.text))
                doubts.unknown(inner, document)


def _identifier(user: Element) -> str:
    found = {_plain(child, None).strip() for child in user.children if child.name == "Identifier"}
    if len(found) > 1:
        raise UnreadableError("it has several identifiers")
    identifier = next(iter(found), "")
    if not _ODD_IDENTIFIER(identifier):
        raise UnreadableError("it has no identifier")
    return identifier


def _plain(element: Element, identifier: str | None) -> str:
    if element.children:
        raise UnreadableError(f"its {element.name} contains elements", identifier)
    return element.text


def _active(
    alias: Element,
    identifier: str,
    extra: list[tuple[str, str]],
    doubts: _Doubts,
    *,
    flat: bool = False,
) -> list[tuple[str, str | None]]:
    """Return the names of an alias, usually one; none if it is closed."""
    names: list[str] = []
    created: str | None = None
    closed = False
    if alias.children:
        doubts.container(alias)
    else:
        doubts.leaf(alias, MAX_ALIAS)
    for child in alias.children:
        if child.name == "Name":
            names.append(_plain(child, identifier).strip())
            doubts.leaf(child, MAX_ALIAS)
        elif child.name == "CreationTime":
            created = created or _plain(child, identifier).strip() or None
            doubts.leaf(child, MAX_WORD)
        elif child.name == "DeletionTime":
            # An empty element has no time and closes nothing.
            closed = closed or bool(_plain(child, identifier).strip())
            doubts.leaf(child, MAX_WORD)
            doubts.deletion(child.text)
        else:
            extra.append((child.name, child.text))
            doubts.unknown(child, alias)
    if created is None and not flat:
        doubts.missing("CreationTime")
    names = names or [alias.text.strip()]
    if not all(names):
        if closed:
            doubts.missing("Name")
            return []
        raise UnreadableError("an open alias has no name", identifier)
    return [] if closed else [(name, created) for name in names]


def _short(name: str) -> str:
    return name if len(name) <= MAX_WORD else f"{name[: MAX_WORD - 1]}…"
