"""A value that somebody gave, and who did: what flags, environment and files are turned into."""

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
