"""The start of a list: its encoding, nothing forbidden, and the root that makes it a list."""

from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from hasat.messages import msg
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
            raise NotAListError(
                msg("{name} has no root in its first {longest} bytes.", name=name, longest=_LONGEST)
            )
        raise TruncatedListError(
            msg("{name} ends at byte {count}, before its root begins.", name=name, count=len(head))
        )
    if found.name != ROOT:
        raise NotAListError(
            msg(
                "{name} is not a list: its root is {found!r}, not {root!r}.",
                name=name,
                found=found.name,
                root=ROOT,
            )
        )
    end = tag_end(head, found.start)
    if head[end - 2 : end] == b"/>":
        raise EmptyListError(msg("{name} names nobody.", name=name))
    return Prolog(head[end:], end)


def _find_root(head: bytes, name: str) -> _Found | None:
    if head[:2] in (b"\xfe\xff", b"\xff\xfe") or b"\0" in head[:4]:
        raise ListEncodingError(
            msg("{name} is written in UTF-16 or UTF-32, not in UTF-8.", name=name)
        )
    parser = expat.ParserCreate()
    found: list[_Found] = []

    def declaration(version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.upper() != "UTF-8":
            raise ListEncodingError(
                msg(
                    "{name} declares the encoding {encoding!r}, not UTF-8.",
                    name=name,
                    encoding=encoding,
                )
            )

    def doctype(root: str, system: str | None, public: str | None, internal: bool) -> None:
        if root != ROOT:
            raise NotAListError(
                msg(
                    "{name} is not a list: it is a document of type {root!r}.", name=name, root=root
                )
            )
        raise ForbiddenMarkupError(
            msg("{name} declares a document type, which no list does.", name=name)
        )

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
                msg(
                    "{name} is not XML: {code} at byte {errorbyteindex}.",
                    name=name,
                    code=expat.ErrorString(error.code),
                    errorbyteindex=parser.ErrorByteIndex,
                )
            ) from error
    return found[0] if found else None
