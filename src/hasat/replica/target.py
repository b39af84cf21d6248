"""What a replica needs from the database it keeps its records in.

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
    """A record on its way into the target; without a body it is to be removed."""

    key: str
    body: bytes | None
    """Canonical JSON."""
    seq: int
    """The change that made it so, or the last one before the archive it was loaded from."""
    changed_at: datetime


@dataclass(frozen=True)
class State:
    """Where the records stand; without a cursor they are not to be gone on with."""

    dataset: str
    epoch: str | None = None
    cursor: str | None = None
    seq: int = 0
    digest: str = EMPTY.hex()
    records: int = 0
    verified_at: datetime | None = None
    """When rows and server were last known to be equal: at loading, or when verified."""


class Target(Protocol):
    """A database that holds one dataset; used by one thread at a time."""

    label: str
    """What to call it before people; no password."""

    def claim(self) -> State:
        """Make the tables if need be and be the only replica here, or say that another is."""

    def state(self) -> State:
        """Where the records stand; needs no claim."""

    def get(self, key: str) -> Any | None:
        """The body of one record; needs no claim."""

    def aside(self) -> AbstractContextManager[object]:
        """What is put inside the block is seen by nobody, and forgotten when it ends."""

    def put(self, rows: Iterable[Row]) -> None:
        """Keep rows aside."""

    def replace(self, was: State, now: State) -> State:
        """Make the rows kept aside the only records, in effect when the block ends.

        Others read all of it or nothing of it. Rows that stay the same are not touched.
        """

    def apply(self, rows: Sequence[Row], was: State, cursor: str) -> State:
        """Apply changes in their order and move to the cursor after them."""

    def recompute(self) -> tuple[int, str]:
        """Number and state digest of the records, from every row."""

    def note(self, was: State, now: State) -> State:
        """Keep a new state of the same records."""

    def close(self) -> None:
        """Leave it to others."""
