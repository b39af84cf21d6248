"""The folders and files of the embedded server, and its identity."""

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hasat.errors import DatabaseError
from hasat.messages import msg
from hasat.store.embedded.account import Account

ROLE = "hasat"
DATABASE = "hasat"
PORT = 5432

# A unix socket's whole path must fit in 104 bytes on macOS and 108 on Linux.
_MAX_SOCKET_PATH = 100


@dataclass(frozen=True)
class Layout:
    """The folder `postgres` in HASAT_HOME."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def unfinished(self) -> Path:
        """Where initdb works; becomes `data` by a rename when it is complete."""
        return self.folder / "data.new"

    @property
    def start_lock(self) -> Path:
        """Held exclusively while a process starts or stops the server."""
        return self.folder / "start.lock"

    @property
    def server_lock(self) -> Path:
        """Held by every server process, so that it is free only when all have ended."""
        return self.folder / "server.lock"

    @property
    def users_lock(self) -> Path:
        """Shared by the Hasat processes that use the server."""
        return self.folder / "users.lock"

    @property
    def stays(self) -> Path:
        """Exists while the server shall run without users until it is stopped."""
        return self.folder / "stays"

    @property
    def configuration(self) -> Path:
        return self.data / "hasat.conf"

    @property
    def start_log(self) -> Path:
        """The server's output before its log is open."""
        return self.folder / "start.log"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def of_server(self) -> tuple[Path, ...]:
        """The folders that belong to the server's user."""
        return (self.data, self.unfinished, self.log, self.run)

    def make(self) -> None:
        """Create the folder; what belongs to the server's user comes with `give_to`."""
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        owned = self.folder.stat()
        if owned.st_uid == os.geteuid():
            # Root's server runs as another user, who must traverse the folder but not list it.
            passes = owned.st_uid == 0 and not reaches_by_descriptor()
            self.folder.chmod(0o711 if passes else 0o700)

    def give_to(self, account: Account) -> None:
        """Create the folders in which the server itself writes."""
        for folder in (self.log, self.run):
            make_private(folder, account)

    def identity(self) -> str:
        """Return the unique name of this server: a random id and the folder's inode.

        The inode makes a copy of the folder a different server.
        """
        file = self.folder / "identity"
        try:
            random = file.read_text("ascii").strip()
        except FileNotFoundError:
            random = ""
        if not random:
            random = secrets.token_hex(16)
            replace_file(file, f"{random}\n", mode=0o600)
        inode = self.folder.stat().st_ino
        return "hasat-" + hashlib.sha256(f"{random}:{inode}".encode()).hexdigest()[:16]

    def socket_folders(self) -> list[Path]:
        """Return the possible folders of the socket, the preferred one first.

        The second one has an unguessable name, the same for processes of any TMPDIR.
        """
        elsewhere = Path("/tmp") / self.identity()  # noqa: S108
        return [folder for folder in (self.run, elsewhere) if _fits(folder)]

    def remove_sockets(self) -> None:
        """Remove the sockets of a stopped server, and their folder outside HASAT_HOME."""
        for folder in self.socket_folders():
            for file in folder.glob(".s.PGSQL.*"):
                file.unlink(missing_ok=True)
            if folder != self.run:
                with suppress(OSError):
                    folder.rmdir()

    def choose_socket_folder(self, account: Account) -> Path:
        """Return a folder that only the server's user and root can open."""
        for folder in self.socket_folders():
            make_private(folder, account)
            if account.may_write(folder):
                return folder
        raise DatabaseError(
            msg(
                "The database's user {account} can create no socket, neither in {run} nor in /tmp.",
                account=account.name,
                run=self.run,
            ),
            remedy=msg("Make /tmp writable for all users (chmod 1777 /tmp)."),
        )


def reaches_by_descriptor() -> bool:
    """Return whether a folder can be used through an open descriptor, independent of its parents.

    Linux allows it, so root's HASAT_HOME stays private although the server runs as another user.
    """
    return Path("/proc/self/fd").is_dir()


def make_private(folder: Path, account: Account) -> None:
    """Create a folder of mode 0700 for the account; reject one that another user created."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        # From here on by descriptor: in /tmp, a path can be swapped between two calls.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _unsafe(folder, account) from error
    try:
        if os.fstat(descriptor).st_uid not in (account.uid, os.geteuid()):
            raise _unsafe(folder, account)
        if account.foreign:
            os.fchown(descriptor, account.uid, account.gid)
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _unsafe(folder: Path, account: Account) -> DatabaseError:
    return DatabaseError(
        msg(
            "{folder} is not a folder of {account}, so it is not safe to use.",
            folder=folder,
            account=account.name,
        ),
        remedy=msg("Find out who created it, and remove it."),
    )


def url_of(socket_folder: Path, database: str = DATABASE) -> str:
    """Return the URL of a database of the embedded server, for any PostgreSQL program."""
    host = quote(os.fsencode(socket_folder), safe="")
    return f"postgresql://{ROLE}@/{database}?host={host}&port={PORT}"


def replace_file(file: Path, text: str, *, mode: int, owner: Account | None = None) -> None:
    """Write a file atomically."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(descriptor, mode)
        if owner is not None and owner.foreign:
            os.fchown(descriptor, owner.uid, owner.gid)
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(file)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= _MAX_SOCKET_PATH
