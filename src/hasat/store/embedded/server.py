"""The embedded PostgreSQL server: started, found, shared and stopped without trusting a pid.

Three file locks, which the kernel releases when their holders die, are the only state.
`start.lock` is held while a process starts or stops the server. `server.lock` is inherited by
every server process: if it is free, none is left, and a remaining postmaster.pid is stale.
`users.lock` is shared by the Hasat processes that use the server; the last one stops it. Whether
a server is alive is checked by connecting to it and reading its name.
"""

import asyncio
import os
import shutil
import signal
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import structlog
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from hasat.errors import ConflictError, DatabaseError
from hasat.messages import msg
from hasat.store.embedded.account import server_account
from hasat.store.embedded.binaries import server_binaries
from hasat.store.embedded.cluster import Cluster
from hasat.store.embedded.layout import DATABASE, Layout, url_of
from hasat.store.explain import disk_full
from hasat.store.home import disk_full as explain_full
from hasat.store.home import is_disk_full
from hasat.store.locks import BoundedWait, locked, try_convert, try_lock

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Launch:
    """A server that this process started, and the lengths of its logs before."""

    cluster: Cluster
    logged_before: dict[Path, int]


class EmbeddedServer:
    """The PostgreSQL server with its data in HASAT_HOME.

    One that is not durable (for tests) loses its data when it stops.
    """

    def __init__(self, home: Path, *, binaries: Path | None = None, durable: bool = True) -> None:
        self.layout = Layout(home.absolute() / "postgres")
        self._binaries = binaries
        self._durable = durable
        self._url: str | None = None

    @asynccontextmanager
    async def lease(self, *, leave_running: bool = False) -> AsyncIterator[str]:
        """Return the URL of the running server; the last process to release its lease stops it.

        A server that was left running on purpose is stopped only by `stop`.
        """
        with self._sentences():
            self.layout.make()
            async with self._starting_or_stopping():
                users = await self._become_user()
        try:
            # Registered as a user first: a process that is interrupted later stops its server.
            with self._sentences():
                async with self._starting_or_stopping():
                    self._url = await self._start()
                    if leave_running:
                        self.layout.stays.touch(mode=0o600)
            yield self._url
        finally:
            try:
                with self._sentences():
                    async with self._starting_or_stopping():
                        if not self.layout.stays.exists() and try_convert(users, shared=False):
                            await self._stop()
            finally:
                os.close(users)

    async def address(self) -> str:
        """Return the URL for a new connection; a server that died is restarted first."""
        if self._url is None or self._nobody_is_left():
            with self._sentences():
                async with self._starting_or_stopping():
                    self._url = await self._start()
        return self._url

    async def stop(self, *, force: bool = False) -> bool:
        """Stop the server; return False if none runs. Refuses while it is used, unless forced."""
        if not self.layout.folder.is_dir():
            return False
        with self._sentences():
            async with self._starting_or_stopping():
                if self._nobody_is_left():
                    return False
                users = try_lock(self.layout.users_lock)
                if users is not None:
                    os.close(users)
                elif not force:
                    raise ConflictError(
                        msg("Other Hasat processes are using the database server."),
                        remedy=msg(
                            "Stop them first, or use --force: those that go on start it again."
                        ),
                    )
                await self._stop()
                return True

    async def _start(self) -> str:
        """Find or start the server, and return when it accepts connections."""
        patience = self._patience("the database server to accept connections")
        launch: _Launch | None = None
        trouble = ""
        while True:
            server_lock = try_lock(self.layout.server_lock)
            if server_lock is None:
                # It runs, starts, recovers or stops, or its last processes are ending.
                try:
                    async with self._connected() as (connection, url):
                        await _ensure_database(connection)
                        return url
                except psycopg.errors.DiskFull as error:
                    raise disk_full(error, str(self.layout.data), embedded=True) from error
                except psycopg.OperationalError as error:
                    trouble = str(error).splitlines()[0]
            else:
                try:
                    if launch:
                        self.layout.remove_sockets()
                        raise launch.cluster.start_failure(launch.logged_before)
                    launch = await self._launch(server_lock)
                    patience = self._patience("the database server to accept connections")
                finally:
                    os.close(server_lock)
            await patience.pause(trouble)

    async def _launch(self, server_lock: int) -> _Launch:
        """Start a server; the caller holds the lock, so none is running."""
        layout = self.layout
        account = server_account(layout.data)
        # Left by an earlier server that was killed.
        layout.stays.unlink(missing_ok=True)
        if not self._durable:
            self._forget_data()
        binaries = await asyncio.to_thread(
            server_binaries, self._binaries, _major_of(layout.data), account
        )
        cluster = Cluster(layout, account, binaries, self._durable)
        layout.give_to(account)
        cluster.remove_leftovers()
        if not layout.data.exists():
            log.info("creating the database", folder=str(layout.data), version=binaries.version)
            await cluster.initialise(server_lock)
        layout.remove_sockets()
        socket_folder = layout.choose_socket_folder(account)
        launch = _Launch(cluster, cluster.logged())
        await cluster.launch(server_lock, socket_folder, layout.identity())
        return launch

    async def _stop(self) -> None:
        """Shut the server down and wait until its last process has ended."""
        patience = self._patience("the database server to stop")
        requested = False
        while not self._nobody_is_left():
            if not requested:
                with suppress(psycopg.OperationalError):
                    async with self._connected() as (connection, _):
                        pid = await _postmaster_pid(connection)
                        if pid == 0:
                            log.warning("the database server runs in another container: left alone")
                            return
                        os.kill(pid, signal.SIGINT)
                        requested = True
            await patience.pause()
        self.layout.stays.unlink(missing_ok=True)
        self.layout.remove_sockets()
        if not self._durable:
            self._forget_data()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[AsyncConnection[TupleRow], str]]:
        """Connect to exactly this server, wherever its socket is; also return the URL."""
        trouble = psycopg.OperationalError("it has no socket")
        for folder in self.layout.socket_folders():
            try:
                connection = await AsyncConnection.connect(
                    url_of(folder, "postgres"), autocommit=True, connect_timeout=10
                )
            except psycopg.OperationalError as error:
                trouble = error
                continue
            async with connection:
                cursor = await connection.execute("SELECT current_setting('cluster_name')")
                if await cursor.fetchone() == (self.layout.identity(),):
                    yield connection, url_of(folder)
                    return
        raise trouble

    def _patience(self, waiting_for: str) -> BoundedWait:
        return BoundedWait(
            waiting_for, remedy=msg("See {log} for what it is doing.", log=self.layout.log)
        )

    def _starting_or_stopping(self) -> AbstractAsyncContextManager[None]:
        patience = BoundedWait(
            "another Hasat process that starts or stops the database server",
            remedy=msg(
                "Find it (fuser -v '{start_lock}') and see what it is doing.",
                start_lock=self.layout.start_lock,
            ),
        )
        return locked(self.layout.start_lock, patience)

    async def _become_user(self) -> int:
        patience = BoundedWait(
            "the list of users", remedy=msg("Free {users_lock}.", users_lock=self.layout.users_lock)
        )
        while (users := try_lock(self.layout.users_lock, shared=True)) is None:
            await patience.pause()
        return users

    def _nobody_is_left(self) -> bool:
        probe = try_lock(self.layout.server_lock, shared=True)
        if probe is None:
            return False
        os.close(probe)
        return True

    def _forget_data(self) -> None:
        if self.layout.data.exists():
            shutil.rmtree(self.layout.data)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn errors of the operating system into DatabaseError."""
        try:
            yield
        except OSError as error:
            folder = self.layout.folder
            if is_disk_full(error):
                full = explain_full(folder, "the database")
                raise DatabaseError(full.message, remedy=full.remedy) from error
            raise DatabaseError(
                msg(
                    "Hasat cannot keep its database in {folder}: {strerror}{file}.",
                    folder=folder,
                    strerror=error.strerror,
                    file=f" ({error.filename})" if error.filename else "",
                ),
                remedy=msg(
                    "Make the folder writable for the user that runs Hasat, or choose "
                    "another one with HASAT_HOME."
                ),
            ) from error


async def _ensure_database(connection: AsyncConnection[TupleRow]) -> None:
    found = await connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
    if not found.rowcount:
        await connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


async def _postmaster_pid(connection: AsyncConnection[TupleRow]) -> int:
    """Return the process that listens on the socket of this connection, 0 if it is not visible."""
    if hasattr(socket, "SO_PEERCRED"):
        with socket.socket(fileno=os.dup(connection.fileno())) as peer:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _, _ = struct.unpack("3i", credentials)
        return int(pid)
    cursor = await connection.execute("SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)")
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


def _major_of(data: Path) -> int | None:
    """Return the PostgreSQL version of the data, None if there is no data."""
    if not data.exists():
        return None
    try:
        return int((data / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError) as error:
        raise DatabaseError(
            msg("{data} exists, but it is not a PostgreSQL data folder.", data=data),
            remedy=msg("Move it away, or choose another folder with HASAT_HOME."),
        ) from error
