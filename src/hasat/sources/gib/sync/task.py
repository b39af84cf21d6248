"""The inputs and results of one sync, shared by the full and the incremental load."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hasat.feed.guard import Counts
from hasat.feed.reconcile import Reconcile, Version
from hasat.messages import msg
from hasat.sources.gib.lists.records import QuarantinedUser
from hasat.sources.gib.lists.tally import Tally
from hasat.sources.gib.sync.processes import WorkerPool
from hasat.sources.gib.sync.state import ListState

ReportProgress = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True)
class SyncTask:
    """The lists of a sync, their last states, and the transaction and workers to load them with."""

    work: Reconcile
    pool: WorkerPool
    lists: Mapping[str, Path]
    hashes: Mapping[str, bytes]
    states: Mapping[str, ListState]
    run: int | None
    folder: Path
    batch_size: int
    progress: ReportProgress

    def list_name(self, box: str) -> str:
        """Return the name of a list in errors."""
        return msg("The {box} list", box=box)

    def agreed_doubts(self, box: str) -> frozenset[str]:
        """Return the doubts that earlier lists of this kind have shared."""
        return frozenset(self.states[box].agreed) if box in self.states else frozenset()


@dataclass(frozen=True)
class ListReport:
    """The size of a list and its number of records."""

    users: int
    rejected: int
    bytes: int
    duplicates: int
    """Records beyond the first of their taxpayer, which are merged with it."""


@dataclass(frozen=True)
class LoadResult:
    """The changes per dataset that a load has staged, and the content of each list."""

    counts: Mapping[str, Counts]
    tallies: Mapping[str, Tally]
    states: Mapping[str, ListState]
    quarantined: Mapping[str, list[QuarantinedUser]]

    def reports(self) -> dict[str, ListReport]:
        return {
            box.lower(): ListReport(
                tally.users, tally.quarantined, tally.bytes, self.states[box].duplicates
            )
            for box, tally in self.tallies.items()
        }


@dataclass(frozen=True)
class SyncReport:
    """The outcome of a sync."""

    outcome: Literal["committed", "unchanged"]
    seconds: float
    lists: Mapping[str, ListReport]
    version: Version
