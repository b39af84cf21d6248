"""What is kept of each list between runs: its fingerprints, and whose record each one is."""

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
from hasat.sources.gib.lists.fingerprints import ODD
from hasat.sources.gib.lists.lines import Kept, dump_parts, load_parts
from hasat.sources.gib.lists.records import SetAside
from hasat.store.aside import Aside, keep_aside
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.gib"


@dataclass(frozen=True)
class ListState:
    """One list as of the last good run; `duplicates` are records beyond their taxpayer's first.

    `usual_length` is the median length of its records in bytes, `agreed` the doubts about a record
    that the list has shared (see `users.py`).
    Fingerprints and identifiers are parallel arrays, in order of the fingerprints: what is in order
    already is put in order for a search at once.
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
        """How many Users the list has, readable or not."""
        return self.users + self.rejected

    @property
    def usual_bytes(self) -> int | None:
        """How large the list would be if all its records were of the usual length."""
        return None if self.usual_length is None else self.records * self.usual_length

    def whose(self, fingerprints: Iterable[bytes]) -> tuple[set[str], bool]:
        """The identifiers behind fingerprints; and whether some are too odd to be kept here."""
        numbers = np.frombuffer(self.identifiers, np.uint64)[self._at(fingerprints)]
        found = {str(number)[1:] for number in numbers.tolist() if number != ODD}
        return found, bool((numbers == ODD).any())

    def moved(self, gone: Iterable[bytes], new: bytes, whose: bytes) -> tuple[bytes, bytes]:
        """Both arrays, less some fingerprints and with those of new records."""
        stay = ~self._at(gone)
        pairs = np.frombuffer(self.fingerprints, np.uint64).reshape(-1, 2)
        owners = np.frombuffer(self.identifiers, np.uint64)
        return in_order(pairs[stay].tobytes() + new, owners[stay].tobytes() + whose)

    def _at(self, fingerprints: Iterable[bytes]) -> NDArray[np.bool_]:
        wanted = np.frombuffer(b"".join(fingerprints), np.uint64).reshape(-1, 2)
        pairs = np.frombuffer(self.fingerprints, np.uint64).reshape(-1, 2)
        # Halves of different fingerprints meet as good as never; here that would only make the
        # next run read a record once more.
        return np.isin(pairs[:, 0], wanted[:, 0]) & np.isin(pairs[:, 1], wanted[:, 1])


async def load_states(conn: AsyncConnection[Any]) -> dict[str, ListState]:
    """The state of each list that was ever read."""
    async with conn.cursor(row_factory=class_row(ListState), binary=True) as cursor:
        await cursor.execute(
            "SELECT name, run, users, rejected, duplicates, xml_bytes, usual_length, agreed,"
            " sha256, seed, fingerprints, identifiers FROM gib.list"
        )
        return {state.name: state async for state in cursor}


async def save_state(
    conn: AsyncConnection[Any], state: ListState, before: ListState | None
) -> None:
    """Keep a list's state, in the transaction of the run that it belongs to."""
    # Tens of megabytes, which are not written again when they are the same.
    same = before is not None and state.arrays == before.arrays
    await conn.execute(
        load_query(_PACKAGE, "save_list_again" if same else "save_list"), vars(state)
    )


def duplicates_in(identifiers: bytes) -> int:
    """How many records are beyond the first of their taxpayer."""
    numbers = np.frombuffer(identifiers, np.uint64)
    usual = numbers[numbers != ODD]
    return len(usual) - len(np.unique(usual))


def in_order(fingerprints: bytes, identifiers: bytes) -> tuple[bytes, bytes]:
    """Both arrays as a state keeps them."""
    pairs = np.frombuffer(fingerprints, np.uint64).reshape(-1, 2)
    order = np.argsort(pairs[:, 0], kind="stable")
    return pairs[order].tobytes(), np.frombuffer(identifiers, np.uint64)[order].tobytes()


def new_seed() -> int:
    """A seed nobody can guess; see `fingerprints` for why."""
    return secrets.randbits(62)


def file_of(path: Path) -> tuple[int, ...]:
    """What tells a file from one that was put in its place, or written over it."""
    facts = path.stat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def sha256_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


_PACKAGE = "hasat.sources.gib"

Parts = dict[str, list[Kept]]
"""A taxpayer's lines by list."""


async def parts_of(conn: AsyncConnection[Any], identifiers: Sequence[str]) -> dict[str, Parts]:
    """The kept parts of taxpayers."""
    cursor = await conn.execute(
        "SELECT identifier, parts FROM gib.taxpayer WHERE identifier = ANY (%s)", [identifiers]
    )
    return {identifier: load_parts(parts) async for identifier, parts in cursor}


async def odd_identifiers(conn: AsyncConnection[Any]) -> set[str]:
    """Those that are no number, so that fingerprints do not tell whose they are."""
    cursor = await conn.execute(
        "SELECT identifier FROM gib.taxpayer WHERE identifier !~ '^[0-9]{1,18}$'"
    )
    return {identifier async for (identifier,) in cursor}


async def note_touched(conn: AsyncConnection[Any], identifiers: Iterable[str]) -> None:
    """Put down, until the transaction ends, of which taxpayers a record came or went."""
    await conn.execute('CREATE TEMP TABLE touched (key text COLLATE "C" NOT NULL) ON COMMIT DROP')
    async with conn.cursor() as cursor, cursor.copy("COPY touched FROM STDIN") as copy:
        for identifier in identifiers:
            await copy.write_row((identifier,))
    await conn.execute("ANALYZE touched")


async def keep_taxpayers(conn: AsyncConnection[Any], after: Mapping[str, Parts]) -> None:
    """Keep the parts of these taxpayers as they are now; who has none is forgotten."""
    gone = [identifier for identifier, parts in after.items() if not any(parts.values())]
    kept = {
        identifier: dump_parts(parts["PK"], parts["GB"]).decode()
        for identifier, parts in after.items()
        if any(parts.values())
    }
    await conn.execute("DELETE FROM gib.taxpayer WHERE identifier = ANY (%s)", [gone])
    await conn.execute(
        load_query(_PACKAGE, "keep_taxpayers"),
        {"identifiers": list(kept), "parts": list(kept.values())},
    )


async def keep_set_aside(
    conn: AsyncConnection[Any], run: int, set_aside: Mapping[str, list[SetAside]]
) -> None:
    """Put records that could not be read where a person can look at them."""
    asides = [
        Aside(f"{box} list, byte {one.offset}", one.reason, one.raw, one.identifier)
        for box, found in set_aside.items()
        for one in found
    ]
    await keep_aside(conn, SOURCE, run, asides)


async def decide_held(conn: AsyncConnection[Any], approved: int | None) -> None:
    """The mirror moved on: the approved run is done, others that waited are out of date."""
    await conn.execute(load_query(_PACKAGE, "decide_held"), {"approved": approved})
