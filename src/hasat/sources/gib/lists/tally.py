"""Batches of a list's records, their totals, and the decision about doubtful records."""

import pickle
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO, NamedTuple

from hasat.messages import msg
from hasat.sources.gib.lists.errors import DamagedListError, EmptyListError, ListEncodingError
from hasat.sources.gib.lists.lines import StoredLine
from hasat.sources.gib.lists.records import QuarantinedUser
from hasat.sources.gib.lists.users import agreed_doubts

# A list with more quarantined Users than this, and than readable ones, is not read to its end.
MAX_QUARANTINED = 10_000
BATCH_SIZE = 10_000


class Doubtful(NamedTuple):
    """A readable record that may be incomplete, and the reasons.

    Without a line, it is not a User but may be the remains of one.
    """

    fingerprint: bytes
    line: bytes | None
    doubts: tuple[str, ...]
    quarantined: QuarantinedUser


@dataclass
class Batch:
    """Some Users of a list: the number seen before, lines of new ones, and unreadable ones."""

    seen: int = 0
    new: list[StoredLine] = field(default_factory=list)
    quarantined: list[QuarantinedUser] = field(default_factory=list)
    doubtful: list[Doubtful] = field(default_factory=list)
    undecodable: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def users(self) -> int:
        """Return the number of readable Users."""
        return self.seen + len(self.new)


@dataclass
class Tally:
    """The totals of a list, complete when all of it was read.

    `unknown` counts content between Users; `undecodable` the quarantined Users that are not UTF-8.
    `doubtful` is the number of undecided records, `doubts` counts their reasons, and `agreed` are
    the doubts that no longer count. `lengths` are those of all or some records.
    """

    users: int = 0
    quarantined: int = 0
    undecodable: int = 0
    bytes: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    doubtful: int = 0
    doubts: Counter[str] = field(default_factory=Counter)
    agreed: frozenset[str] = frozenset()
    lengths: "array[int]" = field(default_factory=lambda: array("L"), repr=False)

    @property
    def usual_length(self) -> int:
        """Return the median length of a record, which no single record can move."""
        return round(statistics.median(self.lengths)) if self.lengths else 0

    @property
    def is_mostly_unreadable(self) -> bool:
        return self.quarantined > max(MAX_QUARANTINED, self.users + self.doubtful)

    def count(self, batch: Batch) -> None:
        """Add a batch to the totals."""
        self.users += batch.users
        self.quarantined += len(batch.quarantined)
        self.undecodable += batch.undecodable
        self.unknown.update(batch.unknown)
        self.doubtful += len(batch.doubtful)
        for one in batch.doubtful:
            self.doubts.update(one.doubts)

    def accept_shared_doubts(self) -> None:
        """Accept the doubts that the whole list shares; call this when all of it was read."""
        self.agreed |= agreed_doubts(self.doubts, self.users + self.doubtful)

    def combine(self, other: "Tally") -> "Tally":
        """Return the totals of two shares of one list; each share counted all bytes."""
        return Tally(
            self.users + other.users,
            self.quarantined + other.quarantined,
            self.undecodable + other.undecodable,
            self.bytes,
            self.unknown + other.unknown,
            self.doubtful + other.doubtful,
            self.doubts + other.doubts,
            self.agreed,
            self.lengths + other.lengths,
        )


def store_doubtful(records: list[Doubtful], file: IO[bytes]) -> None:
    """Append doubtful records to a file for `settle_doubtful`."""
    for one in records:
        pickle.dump(one, file)


def settle_doubtful(file: IO[bytes], tally: Tally) -> Iterator[Batch]:
    """Yield the doubtful records of a file, accepted or quarantined by the agreed doubts."""
    file.seek(0)
    batch = Batch()
    while True:
        try:
            one: Doubtful = pickle.load(file)  # noqa: S301 - written by `store_doubtful`
        except EOFError:
            break
        if not tally.agreed.issuperset(one.doubts):
            # The guard holds a list with this many, and the stored list has their bytes.
            enough = tally.quarantined + len(batch.quarantined) >= MAX_QUARANTINED
            batch.quarantined.append(
                replace(one.quarantined, raw=b"") if enough else one.quarantined
            )
        elif one.line is not None:
            batch.new.append((one.fingerprint, one.line))
        if len(batch.new) + len(batch.quarantined) >= BATCH_SIZE:
            tally.count(batch)
            yield batch
            batch = Batch()
    tally.count(batch)
    tally.doubtful = 0
    yield batch


def check_tally(tally: Tally, name: str) -> None:
    """Raise if a list, read to its end, has too few readable Users."""
    if tally.undecodable * 2 > tally.users + tally.quarantined:
        raise ListEncodingError(
            msg(
                "{name} is not UTF-8: {undecodable} of its Users cannot be decoded.",
                name=name,
                undecodable=tally.undecodable,
            )
        )
    if not tally.users and not tally.quarantined:
        raise EmptyListError(msg("{name} has no User.", name=name))
    if not tally.users or tally.is_mostly_unreadable:
        raise DamagedListError(
            msg(
                "{name} is damaged: {quarantined} Users cannot be read, {users} can.",
                name=name,
                quarantined=tally.quarantined,
                users=tally.users,
            )
        )
