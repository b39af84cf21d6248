"""The stored state of the lists between runs: fingerprints per list, lines per taxpayer."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection
from psycopg.rows import class_row

from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.lists.fingerprints import IRREGULAR
from hasat.sources.gib.lists.lines import StoredLine, dump_lines, load_lines
from hasat.sources.gib.lists.records import QuarantinedUser
from hasat.store.quarantine import QuarantinedRecord, quarantine
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.gib"

LinesByList = dict[str, list[StoredLine]]
"""A taxpayer's lines by list."""


@dataclass(frozen=True)
class ListState:
    """A list as of the last good run; `duplicates` are records beyond their taxpayer's first.

    `usual_length` is the median length of its records in bytes, `agreed` the doubts about a record
    that the list has shared (see `users.py`). Fingerprints and identifiers are parallel arrays,
    sorted by fingerprint, so that a search over them needs no sorting.
    """

    name: str
    run: int | None
    users: int
    rejected: int
    duplicates: int
    xml_bytes: int
    usual_length: int | None
    agreed: list[str]
    sha256: bytes
    seed: int
    fingerprints: bytes
    identifiers: bytes

    @property
    def arrays(self) -> tuple[bytes, bytes]:
        return self.fingerprints, self.identifiers

    @property
    def records(self) -> int:
        """Return the number of Users, readable or not."""
        return self.users + self.rejected

    @property
    def usual_bytes(self) -> int | None:
        """Return the size the list would have if all its records had the usual length."""
        return None if self.usual_length is None else self.records * self.usual_length

    def owners_of(self, fingerprints: Iterable[bytes]) -> tuple[set[str], bool]:
        """Return the identifiers of fingerprints, and whether irregular ones are among them."""
        numbers = np.frombuffer(self.identifiers, np.uint64)[self._mask(fingerprints)]
        found = {str(number)[1:] for number in numbers.tolist() if number != IRREGULAR}
        return found, bool((numbers == IRREGULAR).any())

    def updated_arrays(
        self, gone: Iterable[bytes], new: bytes, new_identifiers: bytes
    ) -> tuple[bytes, bytes]:
        """Return both arrays without some fingerprints and with those of new records."""
        stay = ~self._mask(gone)
        pairs = np.frombuffer(self.fingerprints, np.uint64).reshape(-1, 2)
        owners = np.frombuffer(self.identifiers, np.uint64)
        return sort_arrays(pairs[stay].tobytes() + new, owners[stay].tobytes() + new_identifiers)

    def _mask(self, fingerprints: Iterable[bytes]) -> NDArray[np.bool_]:
        wanted = np.frombuffer(b"".join(fingerprints), np.uint64).reshape(-1, 2)
        pairs = np.frombuffer(self.fingerprints, np.uint64).reshape(-1, 2)
        # Halves of two different fingerprints practically never match one; if they did, the next
        # run would parse one record again.
        return np.isin(pairs[:, 0], wanted[:, 0]) & np.isin(pairs[:, 1], wanted[:, 1])


async def load_states(conn: AsyncConnection[Any]) -> dict[str, ListState]:
    """Return the state of each list that was ever read."""
    async with conn.cursor(row_factory=class_row(ListState), binary=True) as cursor:
        await cursor.execute(
            "SELECT name, run, users, rejected, duplicates, xml_bytes, usual_length, agreed,"
            " sha256, seed, fingerprints, identifiers FROM gib.list"
        )
        return {state.name: state async for state in cursor}


async def save_state(
    conn: AsyncConnection[Any], state: ListState, before: ListState | None
) -> None:
    """Store a list's state in the transaction of its run."""
    # The arrays have tens of megabytes and are not written again if they are the same.
    same = before is not None and state.arrays == before.arrays
    query = "update_list_counts" if same else "save_list"
    await conn.execute(load_query(_PACKAGE, query), vars(state))


def count_duplicates(identifiers: bytes) -> int:
    """Return how many records are beyond the first of their taxpayer."""
    numbers = np.frombuffer(identifiers, np.uint64)
    regular = numbers[numbers != IRREGULAR]
    return len(regular) - len(np.unique(regular))


def sort_arrays(fingerprints: bytes, identifiers: bytes) -> tuple[bytes, bytes]:
    """Return both arrays in the order in which a state stores them."""
    pairs = np.frombuffer(fingerprints, np.uint64).reshape(-1, 2)
    order = np.argsort(pairs[:, 0], kind="stable")
    return pairs[order].tobytes(), np.frombuffer(identifiers, np.uint64)[order].tobytes()


def new_seed() -> int:
    """Return a seed that cannot be guessed; `fingerprints` explains why."""
    return secrets.randbits(62)


def file_identity(path: Path) -> tuple[int, ...]:
    """Return values that change when a file is replaced or overwritten."""
    facts = path.stat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def file_sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


async def load_taxpayer_lines(
    conn: AsyncConnection[Any], identifiers: Sequence[str]
) -> dict[str, LinesByList]:
    """Return the stored lines of taxpayers."""
    cursor = await conn.execute(
        "SELECT identifier, parts FROM gib.taxpayer WHERE identifier = ANY (%s)", [identifiers]
    )
    return {identifier: load_lines(parts) async for identifier, parts in cursor}


async def load_irregular_identifiers(conn: AsyncConnection[Any]) -> set[str]:
    """Return the identifiers that are not numbers, which the state of a list cannot name."""
    cursor = await conn.execute(
        "SELECT identifier FROM gib.taxpayer WHERE identifier !~ '^[0-9]{1,18}$'"
    )
    return {identifier async for (identifier,) in cursor}


async def store_taxpayer_lines(
    conn: AsyncConnection[Any], lines: Mapping[str, LinesByList]
) -> None:
    """Store the lines of taxpayers, and delete those of taxpayers who have none."""
    gone = [identifier for identifier, by_list in lines.items() if not any(by_list.values())]
    stored = {
        identifier: dump_lines(by_list["PK"], by_list["GB"]).decode()
        for identifier, by_list in lines.items()
        if any(by_list.values())
    }
    await conn.execute("DELETE FROM gib.taxpayer WHERE identifier = ANY (%s)", [gone])
    await conn.execute(
        load_query(_PACKAGE, "store_taxpayer_lines"),
        {"identifiers": list(stored), "parts": list(stored.values())},
    )


async def quarantine_users(
    conn: AsyncConnection[Any], run: int, quarantined: Mapping[str, list[QuarantinedUser]]
) -> None:
    """Store Users that could not be read, for inspection."""
    records = [
        QuarantinedRecord(f"{box} list, byte {one.offset}", one.reason, one.raw, one.identifier)
        for box, found in quarantined.items()
        for one in found
    ]
    await quarantine(conn, SOURCE, run, records)
