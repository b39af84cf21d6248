"""Digests: of one record, over every published field; of a whole dataset, whatever its order.

A record's digest is the first half of SHA-256 over its canonical JSON: keys sorted, no spaces,
UTF-8, so that no two different bodies can be spelled alike. A dataset's state digest is the sum,
modulo 2^128, of one such hash per (key, digest): adding, changing and removing a record each
move it by an amount that depends on that record alone, so a run updates it without reading the
rest, and a replica that recomputes it from scratch knows that it is equal.
"""

import hashlib
import json
from typing import Any

SIZE = 16
EMPTY = bytes(SIZE)
_MODULUS = 1 << (8 * SIZE)

_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def canonical(body: Any) -> bytes:
    """The one spelling of a body that its digest is taken over."""
    return _encode(body).encode()


def record_digest(canonical_body: bytes) -> bytes:
    """The digest of one record, from its canonical body."""
    return hashlib.sha256(canonical_body).digest()[:SIZE]


def weight(key: str, digest: bytes) -> int:
    """What one record contributes to its dataset's state digest."""
    return int.from_bytes(hashlib.sha256(digest + key.encode()).digest()[:SIZE], "big")


def shift(state: bytes, amount: int) -> bytes:
    """The state digest after records of that total weight came (or, negative, went)."""
    return ((int.from_bytes(state, "big") + amount) % _MODULUS).to_bytes(SIZE, "big")
