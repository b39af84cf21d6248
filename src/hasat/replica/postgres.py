"""A replica in PostgreSQL, in the schema `replica` of whatever database the address names."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import LockNotAvailable

from hasat.errors import DatabaseError, UsageError
from hasat.feed.encoding import canonical
from hasat.messages import msg
from hasat.replica.target import Row, SqlTarget

_SCHEMA = "replica"
_CREATE_LOCK = 0x6861736174
# The server may need a moment to notice that an earlier replica was killed.
_LOCK_WAIT_SECONDS = 5
_STREAM = 5_000


class PostgresTarget(SqlTarget):
    """A replica in PostgreSQL. Readers never wait for it.

    Every use is one transaction, so that it also works through PgBouncer.
    """

    _kind = "postgres"
    _for_update = " FOR UPDATE"

    def __init__(self, dataset: str, url: str) -> None:
        super().__init__(dataset, f'{_SCHEMA}."{dataset}"', f"{_SCHEMA}.hasat_replica")
        self.label = _label(url)
        self._url = url
        self._conn = self._connect()
        self._lock_conn: psycopg.Connection | None = None

    def _connect(self) -> psycopg.Connection:
        try:
            conn = psycopg.connect(
                self._url, autocommit=True, prepare_threshold=None, application_name="hasat replica"
            )
        except psycopg.OperationalError as error:
            raise DatabaseError(
                f"PostgreSQL cannot be reached ({self.label}): {error}".strip(),
                remedy=msg("Check the address behind --to and that the server is running."),
            ) from error
        return conn

    def _lock(self) -> None:
        """Take a lock in a transaction of a second connection, which stays open."""
        name = f"hasat replica {self._dataset}".encode()
        number = int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)
        self._lock_conn = self._connect()
        self._lock_conn.autocommit = False
        try:
            self._lock_conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            self._lock_conn.execute("SET LOCAL tcp_keepalives_idle = 60")
            self._lock_conn.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT_SECONDS}s'")
            self._lock_conn.execute("SELECT pg_advisory_xact_lock(%s)", [number])
        except LockNotAvailable:
            raise self._claimed_elsewhere() from None

    def _prepare(self) -> None:
        # Replicas of two datasets may be created at the same time.
        self._conn.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
        if not self._found("to_regnamespace", _SCHEMA):
            self._conn.execute(f"CREATE SCHEMA {_SCHEMA}")
        self._execute(self._statement("postgres_state"))

    def _exists(self) -> bool:
        return self._found("to_regclass", self._names["table"])

    def _transaction(self) -> AbstractContextManager[object]:
        return self._conn.transaction()

    @contextmanager
    def aside(self) -> Iterator[None]:
        with self._conn.transaction():
            # Over a slow network, loading waits long for the next rows.
            self._conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            self._conn.execute(
                "CREATE TEMP TABLE aside (key text PRIMARY KEY, body jsonb, seq bigint,"
                " changed_at timestamptz) ON COMMIT DROP"
            )
            yield

    def put(self, rows: Iterable[Row]) -> None:
        with self._conn.cursor() as cursor, cursor.copy("COPY aside FROM STDIN") as copy:
            for key, body, seq, changed_at in rows:
                copy.write_row((key, None if body is None else body.decode(), seq, changed_at))

    def _execute(self, query: str, **values: Any) -> None:
        self._conn.execute(_trusted(query), values)

    def _rows(self, query: str, **values: Any) -> Sequence[Sequence[Any]]:
        try:
            return self._conn.execute(_trusted(query), values).fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    @contextmanager
    def _streamed(self, query: str) -> Iterator[Iterable[Sequence[Any]]]:
        with self._conn.transaction(), self._conn.cursor("hasat_replica_rows") as cursor:
            cursor.itersize = _STREAM
            cursor.execute(_trusted(query))
            yield cursor

    def _canonical(self, body: str) -> bytes:
        return canonical(json.loads(body))

    def _found(self, function: LiteralString, name: str) -> bool:
        row = self._conn.execute(f"SELECT {function}(%s) IS NOT NULL", [name]).fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        self._conn.close()
        if self._lock_conn is not None:
            self._lock_conn.close()


def _trusted(query: str) -> sql.SQL:
    """Return a statement of this package; only a checked name was inserted into it."""
    return sql.SQL(query)


def _label(url: str) -> str:
    """Return server and database without user and password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UsageError(
            msg("The address behind --to is not one of PostgreSQL."),
            remedy=msg("Write it as postgresql://user:password@host:5432/database."),
        ) from error
    return f"{parts.get('host', 'localhost')}/{parts.get('dbname', '')}"
