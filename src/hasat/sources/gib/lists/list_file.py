"""A list on disk, zipped or plain: a stream of checked bytes, and the check of its start."""

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.parsers import expat

from isal import isal_zlib
from isal.igzip_lib import IsalError

from hasat.messages import msg
from hasat.sources.gib.lists.errors import (
    ArchiveError,
    EmptyListError,
    ForbiddenMarkupError,
    ListEncodingError,
    ListError,
    NotAListError,
    TooLargeError,
    TruncatedListError,
)
from hasat.sources.gib.lists.markup import tag_end

# Small enough to stay in the processor's cache between inflating and hashing.
BLOCK = 256 * 1024
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_PACKED_BLOCK = 64 * 1024
# Only the lengths of the name and of the extra field of a local header are needed.
_ENTRY_HEADER = struct.Struct("<4s22xHH")
# A short text compresses well without being a bomb.
_RATIO_FROM = 1024 * 1024
# The errors that zipfile raises for bytes that are not a valid ZIP.
_BAD_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    IsalError,
    EOFError,
    struct.error,
    ValueError,
    OverflowError,
    RuntimeError,
)


@dataclass(frozen=True)
class Limits:
    """Limits far above any real list, which has about 1.3 GB, 14:1, and 350 kB per User."""

    max_bytes: int = 8 * 1024**3
    max_ratio: int = 200
    max_record: int = 16 * 1024**2


@dataclass(frozen=True)
class ListFile:
    """A list that can be read from its start as often as needed."""

    source: Path | BinaryIO
    name: str
    limits: Limits = Limits()

    def blocks(self) -> Iterator[bytes]:
        """Yield the XML in blocks; an error at the end invalidates all."""
        with self._opened() as file:
            start = file.read(4)
            file.seek(0)
            if start[:2] == b"PK":
                yield from self._unpacked(file)
            elif not start:
                raise NotAListError(msg("{name} is an empty file.", name=self.name))
            else:
                yield from self._capped(_reading(file), packed=None)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            if isinstance(self.source, Path):
                with self.source.open("rb") as file:
                    yield file
            else:
                self.source.seek(0)
                yield self.source
        except OSError as error:
            raise ListError(
                msg("Cannot read {name}: {error}.", name=self.name, error=error)
            ) from error

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(file) as archive:
                entry = self._only_entry(archive)
            self._check_size(entry.file_size, entry.compress_size)
            done = checksum = 0
            for block in self._capped(_entry(file, entry), entry.compress_size):
                done += len(block)
                checksum = isal_zlib.crc32(block, checksum)
                yield block
        except _BAD_ZIP as error:  # type: ignore[misc]  # isal's stub hides that its error is one
            raise ArchiveError(
                msg("{name} is not a complete ZIP: {error}.", name=self.name, error=error)
            ) from error
        if done != entry.file_size:
            raise ArchiveError(
                msg(
                    "{name} contains {done} bytes instead of {file_size}.",
                    name=self.name,
                    file_size=entry.file_size,
                    done=done,
                )
            )
        if checksum != entry.CRC:
            raise ArchiveError(msg("{name} is damaged: its CRC-32 does not match.", name=self.name))

    def _only_entry(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        entries = [one for one in archive.infolist() if one.filename.lower().endswith(".xml")]
        if len(entries) != 1:
            raise ArchiveError(
                msg(
                    "{name} contains {count} XML files instead of one.",
                    name=self.name,
                    count=len(entries),
                )
            )
        entry = entries[0]
        if entry.flag_bits & _ENCRYPTED:
            raise ArchiveError(msg("{name} is encrypted.", name=self.name))
        if entry.compress_type not in _STORED_OR_DEFLATED:
            raise ArchiveError(
                msg(
                    "{name} uses the unsupported compression method {compress_type}.",
                    name=self.name,
                    compress_type=entry.compress_type,
                )
            )
        return entry

    def _capped(self, read: Callable[[int], bytes], packed: int | None) -> Iterator[bytes]:
        done = 0
        while block := read(BLOCK):
            done += len(block)
            self._check_size(done, packed)
            yield block

    def _check_size(self, size: int, packed: int | None) -> None:
        limits = self.limits
        if size > limits.max_bytes:
            raise TooLargeError(
                msg(
                    "{name} has more than {max_bytes} bytes of XML.",
                    name=self.name,
                    max_bytes=limits.max_bytes,
                )
            )
        if packed is not None and size > max(_RATIO_FROM, limits.max_ratio * packed):
            raise TooLargeError(
                msg(
                    "{name} expands to more than {max_ratio} times its size.",
                    name=self.name,
                    max_ratio=limits.max_ratio,
                )
            )


def _entry(file: BinaryIO, entry: zipfile.ZipInfo) -> Callable[[int], bytes]:
    """Return a reader of an entry; ISA-L inflates in a third of zipfile's time."""
    file.seek(entry.header_offset)
    signature, name, extra = _ENTRY_HEADER.unpack(file.read(_ENTRY_HEADER.size))
    if signature != b"PK\x03\x04":
        raise zipfile.BadZipFile(msg("its entry is not where the directory says"))
    read = _reading(
        file, entry.header_offset + _ENTRY_HEADER.size + name + extra, entry.compress_size
    )
    if entry.compress_type == zipfile.ZIP_STORED:
        return read
    inflating = isal_zlib.decompressobj(-zlib.MAX_WBITS)

    def inflated(size: int) -> bytes:
        while not inflating.eof:
            packed = inflating.unconsumed_tail or read(_PACKED_BLOCK)
            if block := inflating.decompress(packed, size):
                return block
            if not packed:
                raise EOFError(msg("it is truncated"))
        return b""

    return inflated


def _reading(file: BinaryIO, place: int = 0, length: int | None = None) -> Callable[[int], bytes]:
    """Return a reader that keeps its own position, because several share the file."""
    end = None if length is None else place + length

    def read(size: int) -> bytes:
        nonlocal place
        file.seek(place)
        data = file.read(size if end is None else min(size, end - place))
        place += len(data)
        return data

    return read


def open_list(
    source: Path | BinaryIO, name: str | None = None, limits: Limits | None = None
) -> ListFile:
    """Return the list in a file; errors call it `name`."""
    if name is None:
        name = source.name if isinstance(source, Path) else "The list"
    return ListFile(source, name, limits or Limits())


ROOT = "UserList"
# Real lists have 73 bytes before their first User.
_MAX_PROLOG = 64 * 1024


class Prolog(NamedTuple):
    """The bytes read so far that follow the root's opening tag, and their offset."""

    rest: bytes
    offset: int


class _Found(NamedTuple):
    name: str
    start: int


def read_prolog(blocks: Iterator[bytes], name: str) -> Prolog:
    """Read up to the root's opening tag; raise if the content is not a list."""
    head = b""
    found = None
    for block in blocks:
        head += block
        found = _find_root(head[:_MAX_PROLOG], name)
        if found is not None or len(head) >= _MAX_PROLOG:
            break
    if found is None:
        if len(head) >= _MAX_PROLOG:
            raise NotAListError(
                msg(
                    "{name} has no root element in its first {max_prolog} bytes.",
                    name=name,
                    max_prolog=_MAX_PROLOG,
                )
            )
        raise TruncatedListError(
            msg("{name} ends at byte {count}, before its root element.", name=name, count=len(head))
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
        raise EmptyListError(msg("{name} has no User.", name=name))
    return Prolog(head[end:], end)


def _find_root(head: bytes, name: str) -> _Found | None:
    if head[:2] in (b"\xfe\xff", b"\xff\xfe") or b"\0" in head[:4]:
        raise ListEncodingError(
            msg("{name} is encoded in UTF-16 or UTF-32, not in UTF-8.", name=name)
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
            msg("{name} declares a document type, which is not allowed.", name=name)
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
        # Errors after the root are found by the reader.
        if not found:
            raise NotAListError(
                msg(
                    "{name} is not XML: {error} at byte {offset}.",
                    name=name,
                    error=expat.ErrorString(error.code),
                    offset=parser.ErrorByteIndex,
                )
            ) from error
    return found[0] if found else None
