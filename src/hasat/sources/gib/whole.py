"""A whole list through expat: slow and sure, for lists that cannot be cut at every closing tag."""

import re
from collections.abc import Iterable, Iterator
from xml.parsers import expat

from hasat.messages import msg
from hasat.sources.gib.errors import DamagedListError
from hasat.sources.gib.markup import tag_end

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
