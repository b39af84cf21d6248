"""Stretches of a list parsed by expat; and what is legible of those that are not XML."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from hasat.messages import msg
from hasat.sources.gib.lists.errors import DamagedListError

USER = "User"
_START, _END = b"<UserList>", b"</UserList>"
_TAG = re.compile(rb"""<[^"'>]*(?:(?:"[^"]*"|'[^']*')[^"'>]*)*>""").match
_OPENING_TAG = re.compile("<[A-Za-z]").search
# The longest record ever published has 5,432.
_MOST_ELEMENTS = 200_000

# A User that has one of these twice is two, with what was between them gone.
ONCE_PER_USER = frozenset(("Title", "Type", "FirstCreationTime", "AccountType", "Documents"))
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
    """An XML element. Outermost ones know their place and what is inside of them."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)
    start: int = 0
    end: int = 0
    holds_user: bool = False
    hides_elements: bool = False
    """Whether a comment or an instruction in it contains elements."""

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
        element = Element(name, attributes)
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

    def comment(data: str) -> None:
        if len(stack) > 1 and _OPENING_TAG(data):
            stack[1].hides_elements = True

    def instruction(target: str, data: str) -> None:
        comment(data)

    parser.CommentHandler = comment
    parser.ProcessingInstructionHandler = instruction
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    try:
        _parse(parser, content, closed=closed)
    finally:
        # Else the parser and its handlers hold each other, until somebody looks for cycles.
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
        parser.CommentHandler = parser.ProcessingInstructionHandler = None
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


def legible_identifier(damaged: bytes) -> str | None:
    """Whose record this was, if it is certain that it was one record of one taxpayer.

    One tag may be lost, or one misspelt. Where more of them lost their partners, or one is there
    twice that a User has once, the damage may have swallowed other Users whole.
    """
    identifiers = _LEGIBLE_IDENTIFIER(damaged)
    tags = Counter(_TAG_NAMES(damaged))
    names = {"User", "Identifier", *ONCE_PER_USER}
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


_DIGITS = 10
_NUMBER = re.compile(rf"[0-9]{{{_DIGITS}}}").search


def is_well_formed(blocks: Iterable[bytes], longest: int) -> bool:
    """Whether a whole list is XML, without any comment or tag longer than `longest`."""
    parser = expat.ParserCreate("UTF-8")
    done = 0
    try:
        for block in blocks:
            parser.Parse(block, False)
            done += len(block)
            if done - parser.CurrentByteIndex > longest:
                return False
        parser.Parse(b"", True)
    except expat.ExpatError:
        return False
    return True


def whole_elements(
    blocks: Iterable[bytes], offset: int, longest: int
) -> Iterator[tuple[int, bytes, bool]]:
    """The place and bytes of each outermost element of a well-formed list, from `offset` on.

    And the first line with a number of 10 digits or more in a text between them, marked as text.
    """
    parser = expat.ParserCreate("UTF-8")
    depth = 0
    begun = 0
    places: list[tuple[int, int]] = []
    texts: list[tuple[int, bytes]] = []
    line = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, begun, line
        depth += 1
        line = ""
        if depth == 2:
            begun = parser.CurrentByteIndex

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        if depth == 1:
            places.append((begun, parser.CurrentByteIndex))

    def text(data: str) -> None:
        nonlocal line
        if depth != 1 or _NUMBER(line):
            return
        # A block may end within a number.
        line = line[-_DIGITS:] + data
        if _NUMBER(line):
            texts.append((parser.CurrentByteIndex, line.encode()))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    held = b""
    base = 0
    for block in blocks:
        held += block
        parser.Parse(block, False)
        for first, last_tag in places:
            if first >= offset:
                yield first, held[first - base : tag_end(held, last_tag - base)], False
        places.clear()
        for place, found in texts:
            if place >= offset:
                yield place, found, True
        texts.clear()
        # Keep what is not complete yet: the element begun last, or the token expat is in.
        needed = begun if depth >= 2 else max(base, parser.CurrentByteIndex)
        held, base = held[needed - base :], needed
        if len(held) > longest:
            raise DamagedListError(
                msg(
                    "An element of more than {longest} bytes begins at {base}.",
                    longest=longest,
                    base=base,
                )
            )
