"""The values of this room: a job, what it returns, and the record of a run."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

if TYPE_CHECKING:
    from hasat.jobs.context import RunContext
    from hasat.jobs.link import Connection

LOCATION = "a file or an http(s) address"
Location = Annotated[str, LOCATION]
"""The type of a param that names a file or an address. Who starts a run on the command line may
name both; a queued run opens only http(s) addresses, which must be public."""

OutcomeKind = Literal["done", "nothing", "held", "out_of_quota", "skipped"]
RunOutcome = Literal[OutcomeKind, "failed", "set_aside", "interrupted"]
Trigger = Literal["schedule", "hand", "retry"]
State = Literal["queued", "running", "finished"]


@dataclass(frozen=True)
class Outcome:
    """What a job returns: how it went, and what it changed."""

    kind: OutcomeKind = "done"
    rows_changed: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True)
class Job:
    """A named piece of work and when it runs.

    `run` is an ``async def`` that shares its event loop with the worker's sign of life: work that
    computes for long goes to a thread or a process (``asyncio.to_thread``), or the other workers
    take this one for dead and begin the run anew. It lets a cancellation through, and it can be
    begun anew at any point: a worker may die in the middle of it.
    """

    name: str
    run: "Callable[[RunContext], Awaitable[Outcome]]" = field(hash=False)
    summary: str
    cron: str | None = None
    """Five fields; None means only by hand."""
    zone: str | None = None
    """Where the cron's clock hangs; None means settings.jobs.timezone."""
    enabled: bool = True
    lane: str = "daily"
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    """The type of each param, a number's annotated with its range, and of further ones that may be
    given; a param that is not in here is of its default's type. None means that anything may."""
    overlap: Literal["skip", "queue"] = "skip"
    """A due time while a run is open is skipped, or waits its turn."""
    missed: Literal["once", "skip"] = "once"
    """After an outage the newest missed time is made up for, or none."""
    source: str | None = None
    wanted: "Callable[[Connection], Awaitable[bool]] | None" = field(default=None, hash=False)
    """Checked every few seconds: whether a run is needed although no time is due."""
    machine: "Callable[[Connection, Mapping[str, Any]], Awaitable[str | None]] | None" = field(
        default=None, hash=False
    )
    """Called with the params of a run that is queued: the only machine whose worker can execute
    it, None for any; raises if no worker can."""


@dataclass(frozen=True)
class Run:
    """One row of jobs.run."""

    id: int
    job: str
    params: Mapping[str, Any]
    trigger: Trigger
    scheduled_for: datetime | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: State
    outcome: RunOutcome | None
    attempt: int
    worker: str | None
    requests: int
    rows_changed: int
    message: str | None
    error: str | None
    detail: Mapping[str, Any]
    progress: Mapping[str, Any] | None
