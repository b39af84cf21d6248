"""The contract between a replica and its database, and the common part of SQL databases.

Two tables: one named as the dataset with its records, and `hasat_replica` with one row a dataset
that says where in the feed those records stand. Both change in the same transaction or not at
all; that is all there is to being safe against a crash at any moment.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from hasat.errors import ConflictError, NotFoundError, UsageError
from hasat.feed.encoding import EMPTY, record_digest, shift, weight
from hasat.messages import msg
from hasat.store.queries import load_query


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


class SqlTarget(ABC):
    """One dataset in a SQL database; see `Target` for the contract of the methods."""

    label: str

    def __init__(self, dataset: str, table: str, state_table: str) -> None:
        self._dataset = dataset
        self._names = {"table": table, "state": state_table}

    def claim(self) -> State:
        self._lock()
        with self._transaction():
            self._prepare()
            if not self._rows(self._statement("read_state"), dataset=self._dataset):
                if self._exists():
                    raise UsageError(
                        msg(
                            "{label} has a table {table} that is no replica.",
                            label=self.label,
                            table=self._names["table"],
                        ),
                        remedy=msg(
                            "Choose another database, so that nothing of yours is overwritten."
                        ),
                    )
                self._execute(self._statement(f"{self._kind}_table"))
                self._write(State(self._dataset))
        return self.state()

    def state(self) -> State:
        return self._state(self._statement("read_state"))

    def get(self, key: str) -> Any | None:
        for (body,) in self._rows(self._statement("read_record"), key=key):
            return json.loads(body)
        return None

    def replace(self, was: State, now: State) -> State:
        with self._transaction():
            self._still(was)
            self._execute(self._statement("drop_absent"))
            self._execute(self._statement("merge"))
            self._write(now)
        return now

    def apply(self, rows: Sequence[Row], was: State, cursor: str) -> State:
        # A record may change several times in one page: only its last state counts.
        last = {row.key: row for row in rows}
        after = {key: row.body for key, row in last.items() if row.body is not None}
        with self._transaction(), self.aside():
            self._still(was)
            self.put(last.values())
            before = {
                key: self._canonical(body)
                for key, body in self._rows(self._statement("read_aside"))
            }
            moved = sum(map(_weight, after.items())) - sum(map(_weight, before.items()))
            now = replace(
                was,
                cursor=cursor,
                seq=rows[-1].seq,
                digest=shift(bytes.fromhex(was.digest), moved).hex(),
                records=was.records + len(after) - len(before),
            )
            self._execute(self._statement("drop_removed"))
            self._execute(self._statement("merge"))
            self._write(now)
        return now

    def recompute(self) -> tuple[int, str]:
        records = total = 0
        with self._streamed(self._statement("read_all")) as rows:
            for key, body in rows:
                records += 1
                total += _weight((key, self._canonical(body)))
        return records, shift(EMPTY, total).hex()

    def note(self, was: State, now: State) -> State:
        with self._transaction():
            self._still(was)
            self._write(now)
        return now

    def _state(self, query: str) -> State:
        for row in self._rows(query, dataset=self._dataset):
            epoch, cursor, seq, digest, records, verified_at = row
            # SQLite has no type for times; it stores them as text.
            if isinstance(verified_at, str):
                verified_at = datetime.fromisoformat(verified_at)
            return State(self._dataset, epoch, cursor, seq, digest, records, verified_at)
        raise NotFoundError(
            msg(
                "There is no replica of {dataset} in {label}.",
                dataset=self._dataset,
                label=self.label,
            ),
            remedy=msg(
                "Make one with `hasat replica {dataset} --from URL --to ...`.",
                dataset=self._dataset,
            ),
        )

    def _still(self, was: State) -> None:
        """Check that no other process has changed the records, even if a lock failed."""
        if self._state(self._statement("read_state") + self._for_update).cursor != was.cursor:
            raise ConflictError(
                msg(
                    "Another replica of {dataset} writes to {label}; this one stops.",
                    dataset=self._dataset,
                    label=self.label,
                ),
                remedy=msg("Run one replica per dataset and database."),
            )

    def _write(self, state: State) -> None:
        self._execute(self._statement("write_state"), **asdict(state))

    def _statement(self, name: str) -> str:
        return load_query("hasat.replica", name).format_map(self._names)

    _kind: str
    _for_update: str

    def _claimed_elsewhere(self) -> ConflictError:
        return ConflictError(
            msg(
                "Another replica of {dataset} is at work on {label}.",
                dataset=self._dataset,
                label=self.label,
            ),
            remedy=msg("One is enough; stop it first if you want to run another."),
        )

    @abstractmethod
    def _lock(self) -> None:
        """Take the lock of this dataset until closed."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create the state table if it does not exist."""

    @abstractmethod
    def _exists(self) -> bool:
        """Return whether a table with the dataset's name exists."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[object]:
        """Run the block in one transaction."""

    @abstractmethod
    def aside(self) -> AbstractContextManager[object]: ...

    @abstractmethod
    def put(self, rows: Iterable[Row]) -> None: ...

    @abstractmethod
    def _execute(self, query: str, **values: Any) -> None: ...

    @abstractmethod
    def _rows(self, query: str, **values: Any) -> Sequence[Sequence[Any]]: ...

    @abstractmethod
    def _streamed(self, query: str) -> AbstractContextManager[Iterable[Sequence[Any]]]: ...

    @abstractmethod
    def _canonical(self, body: str) -> bytes:
        """Return the canonical JSON of a stored body."""

    @abstractmethod
    def close(self) -> None: ...


def _weight(record: tuple[str, bytes]) -> int:
    key, body = record
    return weight(key, record_digest(body))
