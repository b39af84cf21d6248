"""Configured values with their origin: what flags, environment and files are turned into."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

MAX_PROBLEMS = 50
"""How many problems are named; a file may have tens of thousands."""

Kind = Literal["flag", "environment", "file", "default"]


@dataclass(frozen=True)
class Origin:
    """Where a value came from: ``file`` and ``config/gib.yaml:3``, ``environment`` and a name."""

    kind: Kind
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".strip()


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Given:
    """One value for one dotted key; scalars are text in every layer and typed only by the check."""

    value: Any
    origin: Origin
    base: Path
    """Where a relative path in it starts."""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    """Lines of the parts of a structured value from a file."""

    def where(self, part: tuple[str | int, ...] = ()) -> str:
        """The place to look at for a part of the value."""
        while part and part not in self.lines:
            part = part[:-1]
        if part in self.lines:
            return f"{self.origin.where.rpartition(':')[0]}:{self.lines[part]}"
        return self.origin.where if self.origin.kind != "flag" else "flag"


@dataclass
class Findings:
    """What loading came across: problems stop it, remarks are for `hasat doctor`."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether more problems would not be named anyway."""
        return len(self.problems) >= MAX_PROBLEMS

    def __str__(self) -> str:
        more = len(self.problems) - MAX_PROBLEMS
        named = self.problems[:MAX_PROBLEMS]
        return "\n".join([*named, f"There are {more:,} more problems."] if more > 0 else named)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """``; did you mean X?``, or a full stop when no known name is close."""
    from difflib import get_close_matches

    folded = {_fold(candidate): candidate for candidate in known}
    close = get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)
    return f"; did you mean {folded[close[0]]!r}?" if close else "."


def _fold(name: str) -> str:
    return name.casefold().replace("-", "_").replace("__", "_")


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
