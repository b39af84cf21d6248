"""Configured values with their origin: what flags, environment and files are turned into."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hasat.messages import Message, join, msg

MAX_PROBLEMS = 50
"""How many problems are named; a file may have tens of thousands."""

Kind = Literal["flag", "environment", "file", "default"]


@dataclass(frozen=True)
class Origin:
    """The origin of a value: ``file`` and ``config/hasat.yaml:3``, ``environment`` and a name."""

    kind: Kind
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".strip()


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Given:
    """A configured value of one dotted key; scalars stay texts until validation."""

    value: Any
    origin: Origin
    base: Path
    """Where a relative path in it starts."""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    """Lines of the parts of a structured value from a file."""

    def where(self, part: tuple[str | int, ...] = ()) -> str:
        """Return the place of a part of the value."""
        while part and part not in self.lines:
            part = part[:-1]
        if part in self.lines:
            return f"{self.origin.where.rpartition(':')[0]}:{self.lines[part]}"
        return self.origin.where if self.origin.kind != "flag" else "flag"


@dataclass
class Findings:
    """Findings while loading: problems stop it, remarks are for `hasat doctor`."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Return whether further problems would not be listed."""
        return len(self.problems) >= MAX_PROBLEMS

    def message(self) -> Message:
        """Return the problems, one in a line."""
        more = len(self.problems) - MAX_PROBLEMS
        named = self.problems[:MAX_PROBLEMS]
        if more > 0:
            named = [*named, msg("There are {count:,} more problems.", count=more)]
        return join(named, "\n")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return ``; did you mean X?``, or a full stop if no known name is similar."""
    from difflib import get_close_matches

    folded = {_fold(candidate): candidate for candidate in known}
    close = get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)
    return msg("; did you mean {name!r}?", name=folded[close[0]]) if close else "."


def _fold(name: str) -> str:
    return name.casefold().replace("-", "_").replace("__", "_")


def default_home() -> Path:
    """Return the platform's folder for user data; the system's for root."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/hasat")
    from platformdirs import user_data_path

    return user_data_path("hasat", appauthor=False)


def absolute(text: str | Path, base: Path) -> Path:
    """Make a path absolute: ``~`` is the user's home, others are relative to `base`."""
    path = Path(text)
    # Without such a user, the tilde is part of the name.
    with contextlib.suppress(RuntimeError):
        path = path.expanduser()
    return Path(os.path.normpath(base / path))


def is_folder(path: Path) -> bool:
    """Return whether the folder exists and is readable."""
    try:
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether the file exists; False also if its folder is not readable."""
    try:
        return path.is_file()
    except OSError:
        return False


def shown(path: Path, cwd: Path) -> str:
    """Return a path for display, relative if it is below the working directory."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
