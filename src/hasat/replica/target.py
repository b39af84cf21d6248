"""The contract between a replica and the database that stores its records.

Two tables: one named as the dataset with its records, and `hasat_replica` with one row a dataset
that says where in the feed those records stand. Both change in the same transaction or not at
all; that is all there is to being safe against a crash at any moment.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from hasat.feed.encoding import EMPTY


class Row(NamedTuple):
    """A record to write; without a body it is removed."""

    key: str
    body: bytes | None
    """Canonical JSON."""
    seq: int
    """The change that made it so, or the last one before the archive it was loaded from."""
    changed_at: datetime


@dataclass(frozen=True)
class State:
    """The state of the records; without a cursor they cannot be continued."""

    dataset: str
    epoch: str | None = None
    cursor: str | None = None
    seq: int = 0
    digest: str = EMPTY.hex()
    records: int = 0
    verified_at: datetime | None = None
    """When rows and server were last known to be equal: at loading, or when verified."""


class Target(Protocol):
    """A database with one dataset, used by one thread at a time."""

    label: str
    """What to call it before people; no password."""

    def claim(self) -> State:
        """Create the tables if needed and take the lock; raise if another replica holds it."""

    def state(self) -> State:
        """Return the state of the records; needs no claim."""

    def get(self, key: str) -> Any | None:
        """Return the body of one record; needs no claim."""

    def aside(self) -> AbstractContextManager[object]:
        """Stage rows inside the block; they are invisible and discarded at its end."""

    def put(self, rows: Iterable[Row]) -> None:
        """Stage rows."""

    def replace(self, was: State, now: State) -> State:
        """Replace all records with the staged rows, in one transaction.

        Rows that stay the same are not touched.
        """

    def apply(self, rows: Sequence[Row], was: State, cursor: str) -> State:
        """Apply changes in order and move the cursor."""

    def recompute(self) -> tuple[int, str]:
        """Return number and state digest of the records, computed from every row."""

    def note(self, was: State, now: State) -> State:
        """Save a new state of the same records."""

    def close(self) -> None:
        """Release the lock and close the database."""
