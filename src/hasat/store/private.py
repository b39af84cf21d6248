"""Permissions of HASAT_HOME: what is in it is for the user who runs Hasat and nobody else."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from hasat.store.layout import Layout

_OTHERS = 0o077


def is_shared(home: Path) -> bool:
    """Whether the folder is evidently not Hasat's alone, such as /tmp or a person's home."""
    found = home.stat()
    return bool(
        found.st_mode & (stat.S_ISVTX | stat.S_IWOTH) or home.resolve() in (Path("/"), Path.home())
    )


def make_home_private(home: Path) -> None:
    """Take away the rights of others in the folder, as earlier versions left them there.

    What belongs to another user, and a folder that is shared with other programs, stays as it is.
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
