"""XML parsing with expat: fragments of a list, damaged fragments, and whole lists."""

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
# The longest published record has 5,432.
_MAX_ELEMENTS = 200_000

# A User with one of these twice is two Users with the bytes between them lost.
ONCE_PER_USER = frozenset(("Title", "Type", "FirstCreationTime", "AccountType", "Documents"))
_READABLE_IDENTIFIER = re.compile(rb"<Identifier>\s*([0-9]{10,11})\s*</Identifier>").findall
_TAG_NAMES = re.compile(rb"<(/?)([A-Za-z]+)(?=[\s>])").findall


class MalformedError(Exception):
    """The bytes are not well-formed XML, whatever follows them."""


class OpenEndedError(Exception):
    """A comment or an element starts in the bytes and does not end in them."""


class UnreadableError(Exception):
    """The element is well-formed, but not a User that can be interpreted."""

    def __init__(self, reason: str, identifier: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.identifier = identifier


@dataclass(slots=True)
class Element:
    """An XML element; outermost ones know their offsets and what they contain."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)
    start: int = 0
    end: int = 0
    contains_user: bool = False
    hides_elements: bool = False
    """Whether a comment or a processing instruction in it contains elements."""

    @property
    def text(self) -> str:
        """Return the element's own characters, unchanged."""
        return "".join(self.pieces)


def tag_end(data: bytes, start: int) -> int:
    """Return where the tag at `start` ends, in bytes that expat has accepted."""
    tag = _TAG(data, start)
    return tag.end() if tag else len(data)


def parse_elements(content: bytes, *, closed: bool = False) -> tuple[list[Element], bool]:
    """Return the elements in a fragment of a list, and whether there is text between them.

    The fragment is parsed inside the list's root. With `closed`, it contains the root's closing
    tag and the bytes after it.
    """
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    root = Element("UserList")
    stack: list[Element] = []
    left = _MAX_ELEMENTS

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise MalformedError(f"it has more than {_MAX_ELEMENTS} elements")
        if not stack:
            stack.append(root)
            return
        element = Element(name, attributes)
        if len(stack) == 1:
            element.start = parser.CurrentByteIndex - len(_START)
        elif name == USER:
            stack[1].contains_user = True
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
        # Break the reference cycle of parser and handlers, so that memory is freed at once.
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


def readable_identifier(damaged: bytes) -> str | None:
    """Return the identifier of a damaged record, if it certainly was one record of one taxpayer.

    One tag may be missing or misspelt. If more tags have no counterpart, or an element that a User
    has once is there twice, the damage may have swallowed other Users.
    """
    identifiers = _READABLE_IDENTIFIER(damaged)
    tags = Counter(_TAG_NAMES(damaged))
    names = {"User", "Identifier", *ONCE_PER_USER}
    twice = any(count > 1 and name.decode() in names for (_, name), count in tags.items())
    if len(identifiers) != 1 or damaged.count(b"<Identifier") != 1 or twice:
        return None
    balance: Counter[bytes] = Counter()
    for (slash, name), count in tags.items():
        balance[name] += -count if slash else count
    unmatched = [name for name, count in balance.items() for _ in range(abs(count))]
    misspelt = (
        len(unmatched) == 2 and sum(balance.values()) == 0 and len(set(map(len, unmatched))) == 1
    )
    if len(unmatched) > 1 and not misspelt:
        return None
    return str(identifiers[0], "ascii")


_DIGITS = 10
_NUMBER = re.compile(rf"[0-9]{{{_DIGITS}}}").search


def is_well_formed(blocks: Iterable[bytes], longest: int) -> bool:
    """Return whether a list is well-formed, without a comment or tag longer than `longest`."""
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


def iter_elements(
    blocks: Iterable[bytes], offset: int, longest: int
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield offset and bytes of each outermost element of a well-formed list, from `offset` on.

    Also yield the first number of 10 or more digits in each text between them, marked as text.
    """
    parser = expat.ParserCreate("UTF-8")
    depth = 0
    opened = 0
    spans: list[tuple[int, int]] = []
    texts: list[tuple[int, bytes]] = []
    line = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, opened, line
        depth += 1
        line = ""
        if depth == 2:
            opened = parser.CurrentByteIndex

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        if depth == 1:
            spans.append((opened, parser.CurrentByteIndex))

    def text(data: str) -> None:
        nonlocal line
        if depth != 1 or _NUMBER(line):
            return
        # A number can span two blocks.
        line = line[-_DIGITS:] + data
        if _NUMBER(line):
            texts.append((parser.CurrentByteIndex, line.encode()))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    buffer = b""
    base = 0
    for block in blocks:
        buffer += block
        parser.Parse(block, False)
        for first, last_tag in spans:
            if first >= offset:
                yield first, buffer[first - base : tag_end(buffer, last_tag - base)], False
        spans.clear()
        for place, found in texts:
            if place >= offset:
                yield place, found, True
        texts.clear()
        # Keep the incomplete end: the open element, or the token that expat is in.
        needed = opened if depth >= 2 else max(base, parser.CurrentByteIndex)
        buffer, base = buffer[needed - base :], needed
        if len(buffer) > longest:
            raise DamagedListError(
                msg(
                    "An element of more than {longest} bytes starts at byte {base}.",
                    longest=longest,
                    base=base,
                )
            )
