"""Binary COPY rows of (key, body, digest), made in any process, and how they get in."""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.abc import Query

from hasat.feed.digest import SIZE, record_digest, weight

_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_TRAILER = struct.pack("!h", -1)

_KEY = struct.Struct("!hi").pack
# A length, then the version byte of jsonb's binary form.
_BODY = struct.Struct("!iB").pack
_DIGEST_LENGTH = struct.pack("!i", SIZE)


class Chunk(NamedTuple):
    """Rows ready to be copied, how many they are, and their share of the state digest."""

    rows: bytes
    records: int
    weight: int


def pack_row(key: bytes, canonical_body: bytes, digest: bytes) -> bytes:
    """One row in PostgreSQL's binary COPY format."""
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
    """Rows of (key, canonical body)."""
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
