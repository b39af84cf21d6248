"""The start of a list: its encoding, nothing forbidden, and the root that makes it a list."""

from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from hasat.sources.gib.errors import (
    EmptyListError,
    ForbiddenMarkupError,
    ListEncodingError,
    NotAListError,
    TruncatedListError,
)
from hasat.sources.gib.markup import tag_end

ROOT = "UserList"
# Real lists have 73 bytes before their first User.
_LONGEST = 64 * 1024


class Prolog(NamedTuple):
    """What follows the root's opening tag in the bytes read so far, and where that is."""

    rest: bytes
    offset: int


class _Found(NamedTuple):
    name: str
    start: int


def read_prolog(blocks: Iterator[bytes], name: str) -> Prolog:
    """Read up to the root's opening tag; a list that does not begin like one is refused."""
    head = b""
    found = None
    for block in blocks:
        head += block
        found = _find_root(head[:_LONGEST], name)
        if found is not None or len(head) >= _LONGEST:
            break
    if found is None:
        if len(head) >= _LONGEST:
            raise NotAListError(f"{name} has no root in its first {_LONGEST} bytes.")
        raise TruncatedListError(f"{name} ends at byte {len(head)}, before its root begins.")
    if found.name != ROOT:
        raise NotAListError(f"{name} is not a list: its root is {found.name!r}, not {ROOT!r}.")
    end = tag_end(head, found.start)
    if head[end - 2 : end] == b"/>":
        raise EmptyListError(f"{name} names nobody.")
    return Prolog(head[end:], end)


def _find_root(head: bytes, name: str) -> _Found | None:
    if head[:2] in (b"\xfe\xff", b"\xff\xfe") or b"\0" in head[:4]:
        raise ListEncodingError(f"{name} is written in UTF-16 or UTF-32, not in UTF-8.")
    parser = expat.ParserCreate()
    found: list[_Found] = []

    def declaration(version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.upper() != "UTF-8":
            raise ListEncodingError(f"{name} declares the encoding {encoding!r}, not UTF-8.")

    def doctype(root: str, system: str | None, public: str | None, internal: bool) -> None:
        if root != ROOT:
            raise NotAListError(f"{name} is not a list: it is a document of type {root!r}.")
        raise ForbiddenMarkupError(f"{name} declares a document type, which no list does.")

    def start(root: str, attributes: dict[str, str]) -> None:
        found.append(_Found(root, parser.CurrentByteIndex))
        parser.StartElementHandler = None

    parser.XmlDeclHandler = declaration
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = start
    try:
        parser.Parse(head, False)
    except expat.ExpatError as error:
        # What comes after the root is looked at by others.
        if not found:
            raise NotAListError(
                f"{name} is not XML: {expat.ErrorString(error.code)} at byte "
                f"{parser.ErrorByteIndex}."
            ) from error
    return found[0] if found else None
