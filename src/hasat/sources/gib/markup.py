"""Records that are not written in the usual way, read by expat; and what is legible of the rest."""

import re
from collections import Counter
from dataclasses import dataclass, field
from xml.parsers import expat

from hasat.sources.gib.records import INVOICE, Aliases, Part, gather

USER = "User"
_START, _END = b"<UserList>", b"</UserList>"
_TAG = re.compile(rb"""<[^"'>]*(?:(?:"[^"]*"|'[^']*')[^"'>]*)*>""").match
# The longest record ever published has 5,432.
_MOST_ELEMENTS = 200_000

_FIELDS = frozenset(
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

# A User that has one of these twice is two, with what was between them gone.
_ONCE = frozenset(("Title", "Type", "FirstCreationTime", "AccountType", "Documents"))

_IDENTIFIER = re.compile(r"\S{1,40}").fullmatch
_LEGIBLE_IDENTIFIER = re.compile(rb"<Identifier>\s*([0-9]{10,11})\s*</Identifier>").findall
_TAG_NAMES = re.compile(rb"<(/?)([A-Za-z]+)(?=[\s>])").findall


class MalformedError(Exception):
    """These bytes are not XML, whatever may follow them."""


class OpenEndedError(Exception):
    """Something begun in these bytes (a comment, an element) does not end in them."""


class UnreadableError(Exception):
    """This is well-formed, but no User one can understand."""

    def __init__(self, reason: str, identifier: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.identifier = identifier


@dataclass(slots=True)
class Element:
    """An XML element. Outermost ones know their place and whether a User is inside of them."""

    name: str
    kind: str | None = None
    pieces: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)
    start: int = 0
    end: int = 0
    holds_user: bool = False

    @property
    def text(self) -> str:
        """The element's own characters, exactly."""
        return "".join(self.pieces)


def tag_end(data: bytes, start: int) -> int:
    """Where the tag that starts at `start` ends, in bytes that expat has accepted."""
    tag = _TAG(data, start)
    return tag.end() if tag else len(data)


def outermost_elements(content: bytes, *, closed: bool = False) -> tuple[list[Element], bool]:
    """The elements in a stretch of a list's content, and whether text stands between them.

    The bytes are read as they would be at their place in the whole list: inside of its root. With
    `closed`, they contain the root's closing tag and what may follow it.
    """
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    root = Element("UserList")
    stack: list[Element] = []
    left = _MOST_ELEMENTS

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise MalformedError(f"it has more than {_MOST_ELEMENTS} elements")
        if not stack:
            stack.append(root)
            return
        element = Element(name, attributes.get("type"))
        if len(stack) == 1:
            element.start = parser.CurrentByteIndex - len(_START)
        elif name == USER:
            stack[1].holds_user = True
        stack[-1].children.append(element)
        stack.append(element)

    def end(name: str) -> None:
        element = stack.pop()
        if len(stack) == 1:
            # An element without content ends with the tag it starts with.
            element.end = tag_end(content, parser.CurrentByteIndex - len(_START))

    def text(data: str) -> None:
        stack[-1].pieces.append(data)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    try:
        _parse(parser, content, closed=closed)
    finally:
        # Else the parser and its handlers hold each other, until somebody looks for cycles.
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    return root.children, bool(root.text.strip())


def _parse(parser: expat.XMLParserType, content: bytes, *, closed: bool) -> None:
    try:
        parser.Parse(_START + content, closed)
    except expat.ExpatError as error:
        place = max(0, parser.ErrorByteIndex - len(_START))
        raise MalformedError(f"{expat.ErrorString(error.code)} at its byte {place}") from error
    if not closed:
        try:
            parser.Parse(_END, True)
        except expat.ExpatError as error:
            raise OpenEndedError(expat.ErrorString(error.code)) from error


def read_element(user: Element) -> Part:
    """What a User says, however it is written; UnreadableError where that is not clear."""
    if user.holds_user:
        raise UnreadableError("another User stands inside of it")
    identifier = _identifier(user)
    names = [child.name for child in user.children if child.name in _ONCE]
    if len(set(names)) < len(names):
        raise UnreadableError("it has parts of two Users")
    fields: dict[str, str] = {}
    extra: list[tuple[str, str]] = []
    aliases: list[tuple[str, Element]] = []
    flat: list[Element] = []
    for child in user.children:
        if child.name in _FIELDS and child.name not in fields:
            fields[child.name] = _plain(child, identifier)
        elif child.name == "Documents":
            for document in child.children:
                if document.name != "Document":
                    extra.append((document.name, document.text))
                    continue
                for inner in document.children:
                    if inner.name == "Alias":
                        aliases.append(((document.kind or "").strip(), inner))
                    else:
                        extra.append((inner.name, inner.text))
        elif child.name == "Alias":
            flat.append(child)
        else:
            extra.append((child.name, child.text))
    active: dict[str, list[tuple[str, str | None]]] = {}
    for kind, alias in aliases:
        active.setdefault(kind, []).extend(_active(alias, identifier, extra))
    if flat and not fields.get("DeletionTime", "").strip():
        # The older lists know invoices only; an alias's times stand beside it.
        beside = fields.get("AliasCreationTime", "").strip() or None
        active.setdefault(INVOICE, []).extend(
            (name, created or beside)
            for alias in flat
            for name, created in _active(alias, identifier, extra)
        )
    documents: dict[str, Aliases] = {}
    for kind, some in active.items():
        if some:
            gather(documents, kind, some)
    return Part(
        identifier,
        fields.get("Title"),
        fields.get("Type", "").strip() or None,
        fields.get("AccountType", "").strip() or None,
        fields.get("FirstCreationTime", "").strip() or None,
        documents,
        tuple(extra),
        bool(flat),
    )


def _identifier(user: Element) -> str:
    found = {_plain(child, None).strip() for child in user.children if child.name == "Identifier"}
    if len(found) > 1:
        raise UnreadableError("it has several identifiers")
    identifier = next(iter(found), "")
    if not _IDENTIFIER(identifier):
        raise UnreadableError("it has no identifier")
    return identifier


def _plain(element: Element, identifier: str | None) -> str:
    if element.children:
        raise UnreadableError(f"its {element.name} contains elements", identifier)
    return element.text


def _active(
    alias: Element, identifier: str, extra: list[tuple[str, str]]
) -> list[tuple[str, str | None]]:
    """The names of an alias, unless it is closed; usually one."""
    names: list[str] = []
    created: str | None = None
    closed = False
    for child in alias.children:
        if child.name == "Name":
            names.append(_plain(child, identifier).strip())
        elif child.name == "CreationTime":
            created = created or _plain(child, identifier).strip() or None
        elif child.name == "DeletionTime":
            # A closing has a time; an element left empty closes nothing.
            closed = closed or bool(child.text.strip())
        else:
            extra.append((child.name, child.text))
    if closed:
        return []
    names = names or [alias.text.strip()]
    if not all(names):
        raise UnreadableError("an open alias has no name", identifier)
    return [(name, created) for name in names]


def legible_identifier(damaged: bytes) -> str | None:
    """Whose record this was, if it is certain that it was one record of one taxpayer.

    One tag may be lost, or one misspelt. Where more of them lost their partners, or one is there
    twice that a User has once, the damage may have swallowed other Users whole.
    """
    identifiers = _LEGIBLE_IDENTIFIER(damaged)
    tags = Counter(_TAG_NAMES(damaged))
    names = {"User", "Identifier", *_ONCE}
    twice = any(count > 1 and name.decode() in names for (_, name), count in tags.items())
    if len(identifiers) != 1 or damaged.count(b"<Identifier") != 1 or twice:
        return None
    partners: Counter[bytes] = Counter()
    for (slash, name), count in tags.items():
        partners[name] += -count if slash else count
    alone = [name for name, count in partners.items() for _ in range(abs(count))]
    misspelt = len(alone) == 2 and sum(partners.values()) == 0 and len(set(map(len, alone))) == 1
    if len(alone) > 1 and not misspelt:
        return None
    return str(identifiers[0], "ascii")
