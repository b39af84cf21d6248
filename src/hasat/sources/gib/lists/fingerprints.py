"""Fingerprints of raw records, so that a record seen in the last run is not parsed again.

A fingerprint is XXH3-128 of a record's bytes under a seed. Among two million records the chance of
an accidental collision is below 10^-25. The hash does not resist an attacker who knows the seed,
so the seed is random and stored with the fingerprints; a new seed only means that every record is
parsed once more.
"""

from collections.abc import Iterable
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

SIZE = 16
IRREGULAR = 0
"""The number of an identifier that is not made of up to 18 digits."""

Pairs = NDArray[np.uint64]


def fingerprints_of(records: list[bytes], seed: int) -> bytes:
    """Return the fingerprints of records, concatenated."""
    return b"".join(map(xxh3_128_digest, records, repeat(seed)))


def _pairs(fingerprints: bytes) -> Pairs:
    return np.frombuffer(fingerprints, np.uint64).reshape(-1, 2)


def _in_order(pairs: Pairs) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return both halves sorted by the first, without duplicate pairs."""
    order = np.argsort(pairs[:, 0], kind="stable")
    first, second = pairs[order, 0], pairs[order, 1]
    again = np.flatnonzero((first[1:] == first[:-1]) & (second[1:] == second[:-1])) + 1
    return (np.delete(first, again), np.delete(second, again)) if again.size else (first, second)


class KnownFingerprints:
    """One list's fingerprints as of the last run, and which of them this run has seen.

    A lookup jumps to the first entry with the same prefix and takes about one step from there,
    which needs a tenth of the time of a binary search over an array larger than any cache.
    """

    def __init__(self, fingerprints: bytes) -> None:
        first, second = _in_order(_pairs(fingerprints))
        self._first = np.append(first, ~np.uint64(0))
        self._second = np.append(second, np.uint64(0))
        self._seen = np.zeros(len(first), np.bool_)
        self._shift = np.uint64(64 - max(1, len(first).bit_length()))
        prefixes = np.arange(1 << (64 - int(self._shift)), dtype=np.uint64) << self._shift
        self._starts = np.searchsorted(self._first[:-1], prefixes).astype(np.uint32)

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, fingerprints: bytes) -> NDArray[np.intp]:
        """Return the index of each fingerprint, -1 where it is unknown."""
        pairs = _pairs(fingerprints)
        first = pairs[:, 0]
        indexes: NDArray[np.intp] = self._starts[first >> self._shift].astype(np.intp)
        # The last entry is the largest possible value and ends every search.
        behind = np.flatnonzero(self._first[indexes] < first)
        while behind.size:
            indexes[behind] += 1
            behind = behind[self._first[indexes[behind]] < first[behind]]
        # A match of only the first half counts as unknown: the record is parsed once too often.
        same = (self._first[indexes] == first) & (self._second[indexes] == pairs[:, 1])
        same &= indexes < len(self._seen)
        indexes[~same] = -1
        return indexes

    def mark(self, indexes: NDArray[np.intp]) -> None:
        """Mark the fingerprints at these indexes as seen in this run."""
        self._seen[indexes[indexes >= 0]] = True

    def gone(self) -> bytes:
        """Return the fingerprints that this run has not seen."""
        indexes = np.flatnonzero(~self._seen)
        return np.column_stack((self._first[indexes], self._second[indexes])).tobytes()


def pack_identifiers(identifiers: Iterable[str]) -> bytes:
    """Return identifiers as numbers prefixed by 1 to keep leading zeros; irregular ones are 0."""
    numbers = [
        int(f"1{name}") if len(name) <= 18 and name.isascii() and name.isdigit() else IRREGULAR
        for name in identifiers
    ]
    return np.array(numbers, np.uint64).tobytes()
