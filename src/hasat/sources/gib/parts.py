"""A taxpayer's lines as they are kept between runs: each with its list and its fingerprint."""

from binascii import hexlify
from collections.abc import Sequence

BOXES = ("PK", "GB")
"""The two lists: receivers' boxes (posta kutusu) and senders (gönderici birim)."""

Kept = tuple[bytes, bytes]
"""The fingerprint of a record and the line it was read into."""

_HEX = 32


def dump_parts(pk: Sequence[Kept], gb: Sequence[Kept]) -> bytes:
    """The lines of both lists as one UTF-8 text; no line holds a line break."""
    entries = [b"P%b%b" % (hexlify(fingerprint), line) for fingerprint, line in pk]
    entries += [b"G%b%b" % (hexlify(fingerprint), line) for fingerprint, line in gb]
    return b"\n".join(entries)


def load_parts(text: str) -> dict[str, list[Kept]]:
    """The lines by list."""
    found: dict[str, list[Kept]] = {"PK": [], "GB": []}
    for entry in text.split("\n"):
        box = "PK" if entry[0] == "P" else "GB"
        fingerprint, line = entry[1 : 1 + _HEX], entry[1 + _HEX :]
        found[box].append((bytes.fromhex(fingerprint), line.encode()))
    return found
