"""A replica in a SQLite file: `sqlite:///relative.db` or `sqlite:////absolute.db`."""

import fcntl
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hasat.errors import NotFoundError, UnavailableError
from hasat.messages import msg
from hasat.replica.target import Row, SqlTarget

_BUSY_SECONDS = 60.0


class SqliteTarget(SqlTarget):
    """A replica in SQLite. In WAL mode readers never wait and never see a partial change."""

    _kind = "sqlite"
    # A writing transaction takes its lock at the beginning.
    _for_update = ""

    def __init__(self, dataset: str, path: Path, *, must_exist: bool) -> None:
        super().__init__(dataset, f'"{dataset}"', "hasat_replica")
        self.label = str(path)
        self._path = path
        self._lock_file: TextIOWrapper | None = None
        if must_exist and not path.is_file():
            raise NotFoundError(msg("There is no replica in {path}.", path=path))
        mode = "rw" if must_exist else "rwc"
        try:
            self._conn = sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?mode={mode}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
            )
            if not must_exist:
                self._conn.execute("PRAGMA journal_mode = WAL")
            self._conn.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            raise UnavailableError(
                msg("{path} cannot be used: {error}.", path=path, error=error),
                remedy=msg("Check the path and its permissions."),
            ) from error
        self._conn.execute(
            "CREATE TEMP TABLE aside (key TEXT PRIMARY KEY, body TEXT, seq INTEGER, changed_at)"
        )

    def _lock(self) -> None:
        # Not the database file itself: closing it here would drop SQLite's own locks.
        self._lock_file = Path(f"{self._path}.{self._dataset}.lock").open("w")  # noqa: SIM115
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._claimed_elsewhere() from None

    def _prepare(self) -> None:
        self._execute(self._statement("sqlite_state"))

    def _exists(self) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = %(name)s"
        return bool(self._rows(query, name=self._dataset))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._conn.execute("BEGIN IMMEDIATE")
        with self._conn:
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._conn.execute("DELETE FROM aside")

    def put(self, rows: Iterable[Row]) -> None:
        if not self._conn.in_transaction:
            self._conn.execute("BEGIN")
            with self._conn:
                return self.put(rows)
        self._conn.executemany(
            "INSERT INTO aside VALUES (?, ?, ?, ?)",
            (
                (row.key, None if row.body is None else row.body.decode(), row.seq, _text(row[3]))
                for row in rows
            ),
        )
        return None

    def _execute(self, query: str, **values: Any) -> None:
        plain = {k: _text(v) if isinstance(v, datetime) else v for k, v in values.items()}
        self._conn.execute(_named(query), plain)

    def _rows(self, query: str, **values: Any) -> Sequence[Sequence[Any]]:
        try:
            return self._conn.execute(_named(query), values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise

    @contextmanager
    def _streamed(self, query: str) -> Iterator[Iterable[Sequence[Any]]]:
        yield self._conn.execute(query)

    def _canonical(self, body: str) -> bytes:
        return body.encode()

    def close(self) -> None:
        self._conn.close()
        if self._lock_file is not None:
            self._lock_file.close()


def _named(query: str) -> str:
    """Return a statement with the placeholders of this driver."""
    return re.sub(r"%\((\w+)\)s", r":\1", query)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
