"""Where Hasat lives on this machine."""

import contextlib
import os
from pathlib import Path


def default_home() -> Path:
    """The platform's folder for a user's data; for root the system's."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/hasat")
    from platformdirs import user_data_path

    return user_data_path("hasat", appauthor=False)


def absolute(text: str | Path, base: Path) -> Path:
    """A path as a person wrote it, made absolute: ``~`` is the user's home, the rest is in base."""
    path = Path(text)
    # Where there is no such user, the tilde is part of the name.
    with contextlib.suppress(RuntimeError):
        path = path.expanduser()
    return Path(os.path.normpath(base / path))


def is_folder(path: Path) -> bool:
    """Whether there is such a folder and its files can be read."""
    try:
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether there is such a file; False also where nobody may look."""
    try:
        return path.is_file()
    except OSError:
        return False


def shown(path: Path, cwd: Path) -> str:
    """A path as short as it stays clear: relative when it is below the working directory."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
