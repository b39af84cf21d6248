"""Canonical JSON, digests and binary COPY rows of records.

A record's digest is the first half of SHA-256 over its canonical JSON (sorted keys, no spaces,
UTF-8), so that different bodies never have the same text. A dataset's state digest is the sum
modulo 2^128 of one such hash per (key, digest). It does not depend on the order, a run updates it
without reading the other records, and a replica can recompute it from its rows.
"""

import hashlib
import json
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.abc import Query

SIZE = 16
EMPTY = bytes(SIZE)
_MODULUS = 1 << (8 * SIZE)

_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def canonical(body: Any) -> bytes:
    """Return the canonical JSON of a body, over which its digest is computed."""
    return _encode(body).encode()


def record_digest(canonical_body: bytes) -> bytes:
    """Return the digest of one record from its canonical body."""
    return hashlib.sha256(canonical_body).digest()[:SIZE]


def weight(key: str, digest: bytes) -> int:
    """Return the contribution of one record to its dataset's state digest."""
    return int.from_bytes(hashlib.sha256(digest + key.encode()).digest()[:SIZE], "big")


def shift(state: bytes, amount: int) -> bytes:
    """Return the state digest after adding records of that weight (negative: removing)."""
    return ((int.from_bytes(state, "big") + amount) % _MODULUS).to_bytes(SIZE, "big")


_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_TRAILER = struct.pack("!h", -1)

_KEY = struct.Struct("!hi").pack
# A length, then the version byte of jsonb's binary form.
_BODY = struct.Struct("!iB").pack
_DIGEST_LENGTH = struct.pack("!i", SIZE)


class Chunk(NamedTuple):
    """Rows in COPY format, their number and their share of the state digest."""

    rows: bytes
    records: int
    weight: int


def pack_row(key: bytes, canonical_body: bytes, digest: bytes) -> bytes:
    """Return one row in PostgreSQL's binary COPY format."""
    return b"".join(
        (
            _KEY(3, len(key)),
            key,
            _BODY(len(canonical_body) + 1, 1),
            canonical_body,
            _DIGEST_LENGTH,
            digest,
        )
    )


def pack(records: Iterable[tuple[str, bytes]]) -> Chunk:
    """Pack pairs of key and canonical body into COPY rows."""
    rows = []
    total = 0
    for key, body in records:
        digest = record_digest(body)
        rows.append(pack_row(key.encode(), body, digest))
        total += weight(key, digest)
    return Chunk(b"".join(rows), len(rows), total)


async def copy_binary(conn: AsyncConnection[Any], command: Query, rows: bytes) -> None:
    """Run a binary COPY FROM STDIN with these rows."""
    async with conn.cursor() as cursor, cursor.copy(command) as copy:
        await copy.write(_HEADER)
        await copy.write(rows)
        await copy.write(_TRAILER)
