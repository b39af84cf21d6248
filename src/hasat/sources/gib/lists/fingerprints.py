"""Fingerprints of raw records: what was seen before need not be read again.

A fingerprint is XXH3-128 of a record's bytes under a seed. Among two million records the chance
that any two different ones share one by accident is below 10^-25. The hash is not made to resist
someone who knows the seed and may choose the bytes, so whoever keeps fingerprints draws a random
seed and keeps it with them; a new seed only means that everything is read once more.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

SIZE = 16
ODD = 0

Pairs = NDArray[np.uint64]


def fingerprints_of(records: list[bytes], seed: int) -> bytes:
    """The fingerprints of records, one after the other."""
    return b"".join(map(xxh3_128_digest, records, repeat(seed)))


def _pairs(fingerprints: bytes) -> Pairs:
    return np.frombuffer(fingerprints, np.uint64).reshape(-1, 2)


def _in_order(pairs: Pairs) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Both halves in order of the first, each pair once; with as few copies as that takes."""
    order = np.argsort(pairs[:, 0], kind="stable")
    first, second = pairs[order, 0], pairs[order, 1]
    again = np.flatnonzero((first[1:] == first[:-1]) & (second[1:] == second[:-1])) + 1
    return (np.delete(first, again), np.delete(second, again)) if again.size else (first, second)


class Known:
    """One list's fingerprints as of the last run, and which of them this run met again.

    Looking one up costs a jump into a table of where each prefix starts and about one step from
    there: a tenth of a binary search over an array that no cache holds.
    """

    def __init__(self, fingerprints: bytes) -> None:
        first, second = _in_order(_pairs(fingerprints))
        self._first = np.append(first, ~np.uint64(0))
        self._second = np.append(second, np.uint64(0))
        self._met = np.zeros(len(first), np.bool_)
        self._shift = np.uint64(64 - max(1, len(first).bit_length()))
        prefixes = np.arange(1 << (64 - int(self._shift)), dtype=np.uint64) << self._shift
        self._starts = np.searchsorted(self._first[:-1], prefixes).astype(np.uint32)

    def __len__(self) -> int:
        return len(self._met)

    def find(self, fingerprints: bytes) -> NDArray[np.intp]:
        """The place of each fingerprint, -1 where it is not known."""
        pairs = _pairs(fingerprints)
        first = pairs[:, 0]
        places: NDArray[np.intp] = self._starts[first >> self._shift].astype(np.intp)
        # The last entry is as large as can be, so every search ends there at the latest.
        behind = np.flatnonzero(self._first[places] < first)
        while behind.size:
            places[behind] += 1
            behind = behind[self._first[places[behind]] < first[behind]]
        # Where only the first half agrees the record counts as unknown: it is read once too often.
        same = (self._first[places] == first) & (self._second[places] == pairs[:, 1])
        same &= places < len(self._met)
        places[~same] = -1
        return places

    def mark(self, places: NDArray[np.intp]) -> None:
        """These were met in this run."""
        self._met[places[places >= 0]] = True

    def gone(self) -> bytes:
        """The fingerprints that this run has not met."""
        places = np.flatnonzero(~self._met)
        return np.column_stack((self._first[places], self._second[places])).tobytes()


class Difference(NamedTuple):
    """How a list's fingerprints differ from the last ones."""

    seen: int
    new: bytes
    gone: bytes


def difference(last: bytes, current: bytes) -> Difference:
    """Split fingerprints into those seen before, the new ones, and those that are gone."""
    known = Known(last)
    places = known.find(current)
    known.mark(places)
    new = _pairs(current)[places < 0].tobytes()
    return Difference(int((places >= 0).sum()), new, known.gone())


def pack_identifiers(identifiers: Iterable[str]) -> bytes:
    """Identifiers as numbers, a 1 put in front to keep leading zeros; odd ones as 0."""
    numbers = [
        int(f"1{name}") if len(name) <= 18 and name.isascii() and name.isdigit() else ODD
        for name in identifiers
    ]
    return np.array(numbers, np.uint64).tobytes()
