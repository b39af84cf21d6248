"""One data folder: created by initdb, served by a postmaster, explained when it does not start."""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hasat.errors import DatabaseError
from hasat.messages import msg
from hasat.store.embedded.account import Account
from hasat.store.embedded.binaries import Binaries
from hasat.store.embedded.layout import PORT, ROLE, Layout, reaches_by_descriptor, replace_file

_TUNING = """\
# Written by Hasat at every start. Change a value with ALTER SYSTEM (hasat db psql): it comes last.
include 'postgresql.conf'
shared_buffers = 256MB
work_mem = 16MB
maintenance_work_mem = 256MB
max_connections = 200
wal_level = minimal             # COPY into a new table writes no log
max_wal_senders = 0
min_wal_size = 256MB
max_wal_size = 4GB
checkpoint_timeout = 15min
jit = off
client_connection_check_interval = 5s  # a killed client's query ends, its locks with it
timezone = 'UTC'
log_timezone = 'UTC'
logging_collector = on
log_filename = 'postgresql-%a.log'
log_rotation_age = 1d
log_rotation_size = 0
log_truncate_on_rotation = on   # a week of logs
log_line_prefix = '%m [%p] '
"""
_KEEP_LOGS_SECONDS = 6 * 86_400
_NO_SPACE = "No space left on device"
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Cluster:
    """PostgreSQL's programs and the data folder that they work on.

    A server that is not durable loses its data in a crash of the machine; only for tests.
    """

    layout: Layout
    account: Account
    binaries: Binaries
    durable: bool = True

    async def initialise(self, server_lock: int) -> None:
        """Create the data folder; killed at any moment, it leaves nothing that a start trusts."""
        self.remove_leftovers()
        self.layout.unfinished.mkdir(mode=0o700)
        if self.account.foreign:
            os.chown(self.layout.unfinished, self.account.uid, self.account.gid)
        with self._passage() as passage:
            exit_code, said = await self._run(
                "initdb",
                f"--pgdata={passage.to(self.layout.unfinished)}",
                f"--username={ROLE}",
                "--encoding=UTF8",
                *self._locale(),
                "--auth-local=trust",  # the socket's folder admits only this user
                "--auth-host=reject",
                *([] if self.durable else ["--no-sync"]),
                descriptors=(server_lock, *passage.descriptors),
            )
        if exit_code:
            raise self._failure("create its data folder", said)
        self.layout.unfinished.rename(self.layout.data)
        _sync_folder(self.layout.folder)

    async def launch(self, server_lock: int, socket_folder: Path, name: str) -> None:
        """Start the postmaster, which takes the lock over; returns before it is ready.

        It is detached and has its own session: neither Ctrl-C nor the end of this process reaches
        it.
        """
        self._remove_old_logs()
        # The pid of a killed server may belong to another process now.
        (self.layout.data / "postmaster.pid").unlink(missing_ok=True)
        with self._passage() as passage:
            data = passage.to(self.layout.data)
            tuning = await self._configuration(data, passage.descriptors)
            replace_file(self.layout.configuration, tuning, mode=0o600, owner=self.account)
            settings = {
                "config_file": f"{data}/{self.layout.configuration.name}",
                "log_directory": passage.to(self.layout.log),
                "listen_addresses": "",
                "port": str(PORT),
                "unix_socket_directories": '"{}"'.format(str(socket_folder).replace('"', '""')),
                "cluster_name": name,
                **({} if self.durable else _NOT_DURABLE),
            }
            command = [
                *("/bin/sh", "-c", 'exec "$@" &', "sh"),
                self.binaries.program("postgres"),
                *("-D", data),
                *(part for key, value in settings.items() for part in ("-c", f"{key}={value}")),
            ]
            with self.layout.start_log.open("wb") as log:
                process = self._spawn(command, log, log, (server_lock, *passage.descriptors))
                await asyncio.to_thread(process.wait)

    def remove_leftovers(self) -> None:
        """Remove the files of an interrupted initdb and the configuration at its old path."""
        (self.layout.folder / self.layout.configuration.name).unlink(missing_ok=True)
        if self.layout.unfinished.exists():
            shutil.rmtree(self.layout.unfinished)

    def _remove_old_logs(self) -> None:
        """Remove logs of last week, which a stopped server did not overwrite."""
        for file, changed in [(file, file.stat().st_mtime) for file in self.layout.log.iterdir()]:
            if changed < time.time() - _KEEP_LOGS_SECONDS:
                file.unlink(missing_ok=True)

    def start_failure(self, logged_before: dict[Path, int]) -> DatabaseError:
        """Return the server's own message about a failed start."""
        logs = sorted(self.layout.log.glob("*.log"), key=lambda file: file.stat().st_mtime)
        texts = [_tail(file, logged_before.get(file, 0)) for file in logs]
        return self._failure("start", "\n".join([_tail(self.layout.start_log, 0), *texts]))

    def logged(self) -> dict[Path, int]:
        """Return the current length of each log file."""
        return {file: file.stat().st_size for file in self.layout.log.glob("*.log")}

    def _failure(self, doing: str, said: str) -> DatabaseError:
        lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
        remedy = f"See {self.layout.log} and {self.layout.start_log}."
        # The messages after a full disk vary.
        found = [line for line in lines if _NO_SPACE in line]
        if found:
            remedy = (
                f"Free some space on the disk of {self.layout.folder}: the server then starts by "
                "itself, and nothing that was stored is lost."
            )
        found = found or [line for line in lines if re.search(r"(FATAL|PANIC|error): ", line)]
        quoted = re.sub(r"^.*?(FATAL|PANIC|ERROR|error): +", "", (found or lines)[-1])
        return DatabaseError(
            msg("PostgreSQL could not {doing}: {quoted}.", doing=doing, quoted=quoted.rstrip(".")),
            remedy=remedy,
        )

    async def _configuration(self, data: str, descriptors: tuple[int, ...]) -> str:
        """The tuning, with the log compressed by lz4 where the programs can."""
        exit_code, _ = await self._run(
            "postgres",
            *("-D", data),
            *("-c", "wal_compression=lz4", "-C", "wal_compression"),
            descriptors=descriptors,
        )
        return _TUNING if exit_code else f"{_TUNING}wal_compression = lz4\n"

    async def _run(
        self, program: str, *arguments: str, descriptors: tuple[int, ...]
    ) -> tuple[int, str]:
        command = [self.binaries.program(program), *arguments]
        process = self._spawn(command, subprocess.PIPE, subprocess.STDOUT, descriptors)
        try:
            said, _ = await asyncio.to_thread(process.communicate)
        except BaseException:
            process.kill()
            raise
        return process.returncode or 0, said.decode(errors="replace")

    def _spawn(
        self,
        command: Sequence[str],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        descriptors: tuple[int, ...],
    ) -> subprocess.Popen[bytes]:
        # Not by the event loop: uvloop starts no process as another user.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            pass_fds=descriptors,
            **self.account.switch(),
        )

    def _locale(self) -> list[str]:
        if self.binaries.major >= 17:
            return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        return ["--locale=C"]

    def _passage(self) -> "_Passage":
        return _Passage(through_descriptors=self.account.foreign and reaches_by_descriptor())


class _Passage:
    """Paths by which the server's user reaches its folders if it cannot enter their parents."""

    def __init__(self, *, through_descriptors: bool) -> None:
        self.descriptors: tuple[int, ...] = ()
        self._through_descriptors = through_descriptors

    def to(self, folder: Path) -> str:
        if not self._through_descriptors:
            return str(folder)
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self.descriptors += (descriptor,)
        return f"/proc/self/fd/{descriptor}"

    def __enter__(self) -> "_Passage":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def _environment() -> dict[str, str]:
    """This process's own, so that a turned clock reaches the server, but for PostgreSQL's names."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _tail(file: Path, after: int) -> str:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(after if after <= size else 0, size - 65536))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
