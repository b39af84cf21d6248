"""Lines: parts encoded as JSON tokens, the form in which records reach the database.

A line has the fields of a `Part`, each as the JSON token that it is in the published body, so that
reading a usual record and publishing a usual taxpayer only move bytes. Control characters, which
JSON tokens never contain, separate the fields. Unusual records go through `Part` and `merge`; both
ways produce the same bytes.
"""

import json
import re
from binascii import hexlify
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from hasat.sources.gib.lists.records import (
    DESPATCH,
    DOCUMENT_OF,
    INVOICE,
    Part,
    earlier,
    merge,
    published_body,
)
from hasat.sources.gib.lists.users import MAX_ALIAS, MAX_TITLE, MAX_WORD

BOXES = ("PK", "GB")
"""The two lists: receivers (posta kutusu) and senders (gönderici birim)."""

StoredLine = tuple[bytes, bytes]
"""The fingerprint of a record and the line it was read into."""

_HEX = 32
_FIELD, _INNER = b"\x1f", b"\x1e"
_NULL = b"null"
_BODY = (
    b'{"accountType":%b,"aliases":[%b],"firstCreationTime":%b,"identifier":%b,"title":%b,"type":%b}'
)
_ENTRIES: Final = {
    box: b'{"alias":"%%b","creationTime":%%b,"type":"%b"}' % box.encode() for box in BOXES
}
_DATASET_OF: Final = {b'"%b"' % kind.encode(): name for name, kind in DOCUMENT_OF.items()}

_SPACE = r"[ \t\r\n]*+"
# The length and characters of a time; an invalid one is stored as it is, as everywhere.
_TIME = r"[0-9T:-]{19}"
# No character that XML or JSON escapes, no '>' as it may end a forbidden ']]>', and no first byte
# of U+FFFE and U+FFFF, which XML forbids. Not blank (no first byte of any kind of space) and not
# longer than any title: `users.py` has doubts about such a record.
_TITLE = rf'(?![ \xc2\xe1-\xe3])[^<>&"\\\x00-\x1f\xef]{{1,{MAX_TITLE}}}+'
# Printable ASCII of that kind, without anything to trim.
_ALIAS = rf"[!#-%'-;=?-\[\]-~]{{1,{MAX_ALIAS}}}+"
_WORD = rf"[A-Z]{{1,{MAX_WORD}}}+"
_KIND = rf"{INVOICE}|{DESPATCH}"
# Only valid times; the leap day takes the slow path.
_DAY = (
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    r"|(?:0[13578]|1[02])-31)"
)
_MOMENT = rf"[12][0-9]{{3}}-{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"

_OPEN_ALIAS = (
    rf"<Alias>{_SPACE}<Name>({_ALIAS})</Name>{_SPACE}"
    rf"<CreationTime>({_TIME})</CreationTime>{_SPACE}"
)
_CLOSED = rf"(<DeletionTime>{_MOMENT}</DeletionTime>{_SPACE})?"
_ALIAS_END = rf"</Alias>{_SPACE}"
_DOCUMENT = rf'<Document type="({_KIND})">{_SPACE}'
_DOCUMENT_END = rf"</Document>{_SPACE}"
_ONE_ALIAS = _DOCUMENT + _OPEN_ALIAS + _ALIAS_END + _DOCUMENT_END

# Five of six records have one or two documents with one open alias each.
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
_STEPS = re.compile(
    rf"{_OPEN_ALIAS}{_CLOSED}{_ALIAS_END}|{_DOCUMENT}|({_DOCUMENT_END})|(.+)".encode(), re.DOTALL
).findall
# Of two such times, the earlier one sorts first.
_PLAIN_TIME = re.compile(rf'"{_MOMENT}"'.encode()).fullmatch

# The encoding of `feed.encoding.canonical`, which workers do not import because it needs psycopg.
_to_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def read_line(piece: bytes) -> bytes | None:
    """Return the line of a record without its closing tag; None if it has an unusual form.

    The pattern matches the whole record or nothing, so a match is well-formed XML in which every
    byte is accounted for.
    """
    match = _RECORD(piece)
    if match is None:
        return None
    identifier, title, type_, first, account, kind, alias, time, kind_2, alias_2, time_2, others = (
        match.groups()
    )
    if not title.isascii():
        try:
            title.decode()
        except UnicodeDecodeError:
            return None
    head = b'"%b"\x1f"%b"\x1f"%b"\x1f%b\x1f"%b"\x1f' % (
        identifier,
        title,
        type_,
        _NULL if account is None else b'"%b"' % account,
        first,
    )
    if kind is None:
        documents = _read_documents(others)
        return None if documents is None else head + documents
    line = b'%b\x1f"%b"\x1e"%b"\x1e"%b"' % (head, kind, alias, time)
    if kind_2 is None:
        return line
    return (
        None if kind_2 == kind else b'%b\x1f"%b"\x1e"%b"\x1e"%b"' % (line, kind_2, alias_2, time_2)
    )


def _read_documents(content: bytes) -> bytes | None:
    """Return the documents' fields of a line; None if there is anything but documents."""
    found: dict[bytes, list[tuple[bytes, bytes]]] = {}
    active: list[tuple[bytes, bytes]] | None = None
    empty = True
    for alias, created, closed, kind, end, anything_else in _STEPS(content):
        if anything_else:
            return None
        if alias:
            if active is None:
                return None
            empty = False
            if not closed:
                active.append((alias, created))
        elif end:
            if active is None or empty:
                return None
            active = None
        else:
            if active is not None or kind in found:
                return None
            active = found[kind] = []
            empty = True
    if active is not None or not found:
        return None
    return b"".join(
        [
            b'\x1f"%b"%b'
            % (kind, b"".join([b'\x1e"%b"\x1e"%b"' % one for one in _without_duplicates(aliases)]))
            for kind, aliases in found.items()
            if aliases
        ]
    )


def _without_duplicates(active: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    if len(active) == 1:
        return active
    times = dict(active)
    if len(times) < len(active):
        for alias, created in active:
            if times[alias] != created:
                first = earlier(times[alias].decode(), created.decode())
                times[alias] = (first or "").encode()
    return sorted(times.items())


def encode_part(part: Part) -> bytes:
    """Return the line of a part."""
    fields = [_token(value) for value in part[:5]]
    unusual = bool(part.extra or part.flat)
    fields.append(_to_json([part.extra, part.flat]) if unusual else "")
    fields += [
        "\x1e".join((_token(kind), *(_token(text) for alias in active for text in alias)))
        for kind, active in part.documents.items()
    ]
    return "\x1f".join(fields).encode()


def _token(value: str | None) -> str:
    return "null" if value is None else encode_basestring(value)


def decode_part(line: bytes) -> Part:
    """Return the part that a line encodes."""
    *scalars, unusual = (fields := line.decode().split("\x1f"))[:6]
    identifier, title, type_, account, first = map(json.loads, scalars)
    extra, flat = json.loads(unusual or "[[],false]")
    active = {}
    for document in fields[6:]:
        kind, *texts = map(json.loads, document.split("\x1e"))
        active[kind] = tuple(zip(texts[::2], texts[1::2], strict=True))
    extras = tuple((name, text) for name, text in extra)
    return Part(identifier, title, type_, account, first, active, extras, flat)


def token_of(line: bytes) -> bytes:
    """Return the identifier's token of a line, equal for all lines of a taxpayer."""
    return line[: line.index(_FIELD)]


def token_for(identifier: str) -> bytes:
    """Return the token of an identifier."""
    return _token(identifier).encode()


def identifier_of(token: bytes) -> str:
    """Return the identifier of a token."""
    text = token.decode()
    return text[1:-1] if "\\" not in text else str(json.loads(text))


def published_bodies(pk: Sequence[bytes], gb: Sequence[bytes]) -> dict[str, bytes]:
    """Return the canonical JSON that each dataset publishes of the taxpayer of these lines."""
    if len(pk) + len(gb) == 1:
        return _bodies_of_one_line(pk[0], "PK") if pk else _bodies_of_one_line(gb[0], "GB")
    if len(pk) > 1 or len(gb) > 1 or b"\\" in pk[0] + gb[0]:
        return _bodies_by_parts(pk, gb)
    identifier, title, type_, account, created, _, *documents = pk[0].split(_FIELD)
    _, title_gb, type_gb, account_gb, created_gb, _, *others = gb[0].split(_FIELD)
    title = title_gb if title == _NULL else title
    type_ = type_gb if type_ == _NULL else type_
    account = account_gb if account == _NULL else account
    if created != created_gb:
        created = _earlier(created, created_gb)
    return {
        _DATASET_OF[kind]: _BODY % (account, listed, created, identifier, title, type_)
        for kind, listed in _aliases_of_both(documents, others).items()
    }


def _bodies_of_one_line(line: bytes, box: str) -> dict[str, bytes]:
    entry = _ENTRIES[box]
    identifier, title, type_, account, created, _, *documents = line.split(_FIELD)
    bodies = {}
    for document in documents:
        kind, *texts = document.split(_INNER)
        dataset = _DATASET_OF.get(kind)
        if dataset is not None:
            pairs = zip(texts[::2], texts[1::2], strict=True)
            aliases = [entry % (alias[1:-1], time) for alias, time in pairs]
            bodies[dataset] = _BODY % (
                account,
                b",".join(aliases),
                created,
                identifier,
                title,
                type_,
            )
    return bodies


def _earlier(one: bytes, other: bytes) -> bytes:
    if _PLAIN_TIME(one) and _PLAIN_TIME(other):
        return min(one, other)
    return _token(earlier(json.loads(one), json.loads(other))).encode()


def _aliases_of_both(pk: list[bytes], gb: list[bytes]) -> dict[bytes, bytes]:
    """Return the published aliases of both lists, by document type."""
    found: dict[bytes, list[tuple[bytes, str, bytes]]] = {}
    for box, documents in zip(BOXES, (pk, gb), strict=True):
        for document in documents:
            kind, *texts = document.split(_INNER)
            if kind in _DATASET_OF:
                some = found.setdefault(kind, [])
                # Without its quotes, a token that has no backslash sorts like its text.
                for alias, time in zip(texts[::2], texts[1::2], strict=True):
                    some.append((alias[1:-1], box, time))
    return {
        kind: b",".join([_ENTRIES[box] % (name, time) for name, box, time in sorted(some)])
        for kind, some in found.items()
    }


def _bodies_by_parts(pk: Sequence[bytes], gb: Sequence[bytes]) -> dict[str, bytes]:
    taxpayer = merge([decode_part(line) for line in pk], [decode_part(line) for line in gb])
    return {
        dataset: _to_json(body).encode()
        for dataset in DOCUMENT_OF
        if (body := published_body(taxpayer, dataset)) is not None
    }


def dump_lines(pk: Sequence[StoredLine], gb: Sequence[StoredLine]) -> bytes:
    """Return the lines of both lists as one UTF-8 text; no line contains a line break."""
    entries = [b"P%b%b" % (hexlify(fingerprint), line) for fingerprint, line in pk]
    entries += [b"G%b%b" % (hexlify(fingerprint), line) for fingerprint, line in gb]
    return b"\n".join(entries)


def load_lines(text: str) -> dict[str, list[StoredLine]]:
    """Return the lines of a taxpayer by list."""
    found: dict[str, list[StoredLine]] = {"PK": [], "GB": []}
    for entry in text.split("\n"):
        box = "PK" if entry[0] == "P" else "GB"
        fingerprint, line = entry[1 : 1 + _HEX], entry[1 + _HEX :]
        found[box].append((bytes.fromhex(fingerprint), line.encode()))
    return found
