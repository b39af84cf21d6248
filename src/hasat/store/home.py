"""HASAT_HOME on this machine: private permissions, free disk space and the name of the machine."""

import errno
import os
import platform
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hasat.errors import DiskFullError
from hasat.messages import msg
from hasat.store.embedded.layout import Layout

# PostgreSQL allocates up to this much at once: a segment of its write-ahead log, twice.
SHORT_BYTES = 32 * 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FREE = msg("Free some space there and try again; nothing that was stored is lost.")


def is_disk_full(error: BaseException) -> bool:
    """Return whether the error means that a disk is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def disk_full(folder: Path, what: str) -> DiskFullError:
    """Return the error for a file that did not fit into a folder."""
    mount = mount_of(folder)
    return DiskFullError(
        msg(
            "The disk of {folder} is full: {what} could not be written ({megabytes} "
            "free on {mount}).",
            folder=folder,
            what=what,
            megabytes=_megabytes(free_bytes(mount)),
            mount=mount,
        ),
        remedy=_FREE,
    )


@contextmanager
def explaining_disk_full(what: str, folder: Path) -> Iterator[None]:
    """Turn a full disk into an error that names what is written and where."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise disk_full(folder, what) from error


def explain_disk_full(error: BaseException, home: Path | None = None) -> DiskFullError | None:
    """Return the error for a full disk when only the system's error is known.

    The system does not say which disk it was, so those with little free space are named.
    """
    if not is_disk_full(error):
        return None
    assert isinstance(error, OSError)
    named = [] if error.filename is None else [Path(os.fsdecode(error.filename)).parent]
    folders = [*named, *([] if home is None else [home]), Path(tempfile.gettempdir()), Path.cwd()]
    mounts = dict.fromkeys(map(mount_of, folders))
    short = [mount for mount in mounts if free_bytes(mount) < SHORT_BYTES] or list(mounts)[:1]
    places = " and ".join(f"{one} ({_megabytes(free_bytes(one))} free)" for one in short)
    return DiskFullError(msg("The disk is full: {places}.", places=places), remedy=_FREE)


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder."""
    return shutil.disk_usage(nearest(folder)).free


def is_short(folder: Path) -> bool:
    """Return whether the file system of a folder is almost full."""
    try:
        return free_bytes(folder) < SHORT_BYTES
    except OSError:
        return False


def mount_of(folder: Path) -> Path:
    """Return where the file system of a folder is mounted."""
    place = nearest(folder).resolve()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place


def nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


_OTHERS = 0o077


def is_shared(home: Path) -> bool:
    """Return whether other programs use the folder too, as /tmp or a user's home."""
    found = home.stat()
    return bool(
        found.st_mode & (stat.S_ISVTX | stat.S_IWOTH) or home.resolve() in (Path("/"), Path.home())
    )


def make_home_private(home: Path) -> None:
    """Remove the permissions of other users, which earlier versions left in the folder.

    Files of another user, and a folder that other programs use too, stay unchanged.
    """
    if not home.is_dir() or is_shared(home):
        return
    servers = Layout(home / "postgres").of_server
    _close(home)
    for folder, folders, files in os.walk(home):
        inside = [Path(folder, name) for name in folders]
        folders[:] = [path.name for path in inside if path not in servers]
        for path in (*inside, *(Path(folder, name) for name in files)):
            _close(path)


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):
        found = path.lstat()
        ours = found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
        if ours and found.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def machine_of(home: Path) -> str:
    """Return the machine's name: its host name and a random part, stored in HASAT_HOME.

    It belongs to the folder, so that a container that is replaced but retains its volume is still
    the same machine.
    """
    return create_once(
        home / "machine", lambda: f"{platform.node() or 'unnamed'}-{secrets.token_hex(4)}"
    )


def create_once(file: Path, make: Callable[[], str]) -> str:
    """Return the text of a private file; the first process that needs it creates it."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        pass
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    draft.touch(0o600)
    draft.write_text(make(), "utf-8")
    try:
        # Unlike a rename, a link never replaces what another process has just written.
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return file.read_text("utf-8")
