"""The part of a source in the demo."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hasat.jobs import Catalogue, Run
from hasat.jobs.queue import queue_run
from hasat.settings import Settings
from hasat.sim import Simulation
from hasat.sim.simulation import Faults
from hasat.source import Source
from hasat.source.installed import all_sources
from hasat.source.parts import load_part
from hasat.store import Store

RECEIVER_DOWN = range(3, 8)
"""The minutes of each hour in which the webhook receiver is down."""


@dataclass(frozen=True)
class DemoFolder:
    """The folder of a demo, and when its script began; pauses of the demo do not count."""

    path: Path
    began: datetime
    now: datetime


@dataclass(frozen=True)
class Scene:
    """An event of the demo that can be seen on `page` from a given minute on."""

    minute: int
    page: str
    link: str
    """An address, or a command, that shows the same."""
    title: str
    text: str
    every_hour: bool = False
    replay: range | None = None
    """The minutes of the script that show it again; None if it cannot be repeated."""

    def visible_at(self, began: datetime, started: datetime) -> datetime | None:
        """Return when the scene is first visible after a start of the demo; None if it was before.

        Simulators start some seconds later, and jobs run at the full minute.
        """
        happens_at = began + timedelta(minutes=self.minute, seconds=15)
        visible = happens_at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while self.every_hour and visible < started:
            visible += timedelta(hours=1)
        return visible if visible >= started else None


@dataclass(frozen=True)
class Loading:
    """The first records of the demo: the runs that load them, and how many there will be."""

    label: str
    expected: int | None
    """None if it is unknown."""
    count: str
    """A query for the number of records so far."""
    start: Callable[[Store, Settings, Catalogue], Awaitable[Run | None]]
    """Queue the first runs; return the run to wait for, else the first records are awaited."""
    then: tuple[str, ...] = ()
    """Jobs to queue when all records are there."""


@dataclass(frozen=True)
class DemoPart:
    """A source in the demo: its simulation, its settings, its faults and its scenes."""

    simulation: Callable[[DemoFolder], Simulation]
    settings: Callable[[DemoFolder, str], Mapping[str, Any]]
    """The source's settings for its simulator at an address; writes the files that they name."""
    scenes: tuple[Scene, ...]
    loading: Loading
    schedule: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Entries of jobs.schedule."""
    switch_faults: Callable[[int, Faults], None] = lambda _minute, _faults: None
    """Switch the faults of one minute of each hour."""
    fault_to_try: str | None = None
    """A fault that the terminal suggests to switch on."""


def demo_parts() -> Mapping[str, DemoPart]:
    """Return the parts of the installed sources by name, in the order of their first scenes."""
    parts = {
        source.name: part
        for source in all_sources()
        if (part := load_part(source, partial(demo_part, source))) is not None
    }
    return dict(sorted(parts.items(), key=lambda one: _first_minute(one[1].scenes)))


def demo_part(source: Source) -> DemoPart | None:
    """Return the part of a source: its own, or its simulator with the first run of each job."""
    if source.demo is not None:
        return source.demo()
    simulator = source.simulator() if source.simulator is not None else None
    if simulator is None or simulator.settings is None:
        return None
    settings = simulator.settings

    async def start(store: Store, _settings: Settings, catalogue: Catalogue) -> Run | None:
        runs = [await queue_run(store, catalogue, job.name) for job in source.all_jobs if job.cron]
        return runs[-1] if runs else None

    datasets = ", ".join(f"'{dataset.name}'" for dataset in source.datasets)
    return DemoPart(
        lambda _: Simulation(simulator, seed=1),
        lambda _, address: settings(address),
        (),
        Loading(
            source.title,
            None,
            f"SELECT coalesce(sum(records), 0) FROM feed.head WHERE dataset IN ({datasets})",  # noqa: S608
            start,
        ),
    )


def _first_minute(scenes: Sequence[Scene]) -> int:
    return min((scene.minute for scene in scenes), default=0)
