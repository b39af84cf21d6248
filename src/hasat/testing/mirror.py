"""A source that mirrors its simulator into a throw-away database."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from psycopg.abc import QueryNoTemplate
from starlette.types import Receive, Scope, Send

from hasat.api.app import create_app
from hasat.demo import DemoFolder, DemoPart, demo_part
from hasat.errors import UsageError
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue, Run, Worker
from hasat.jobs.catalogue import unknown_params
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import list_runs
from hasat.messages import msg
from hasat.settings import Settings, load_settings
from hasat.settings.environment import without_settings
from hasat.sim import Simulation, simulate
from hasat.source import Source
from hasat.source.installed import all_sources
from hasat.store import Store, open_store
from hasat.testing.database import throw_away_database
from hasat.web.app import add_pages

_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 180.0


class Gate:
    """Lets a number of requests to a simulation through and stops all others until it opens."""

    def __init__(self, simulation: Simulation) -> None:
        self.stopped = asyncio.Event()
        """Set when a request is stopped."""
        self._open = asyncio.Event()
        self._open.set()
        self._left = 0
        self._app, simulation.app = simulation.app, self

    def close(self, after: int) -> None:
        """Stop the requests after that many."""
        self._left = after
        self.stopped.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._open.is_set():
            self._left -= 1
            if self._left < 0:
                self.stopped.set()
                await self._open.wait()
        await self._app(scope, receive, send)


@dataclass
class Mirror:
    """The source, its simulation, and the database that its jobs fill."""

    source: Source
    part: DemoPart
    simulation: Simulation
    gate: Gate
    settings: Settings
    store: Store
    catalogue: Catalogue
    environ: Mapping[str, str]
    """For child processes with the same settings."""
    first: list[Run] = field(default_factory=list)
    """The runs that loaded the first records."""
    first_requests: int = 0
    """The requests that the runs of `Loading.start` have sent."""

    async def load(self) -> list[Run]:
        """Load the first records as the demo does; return the finished runs."""
        before = await self._newest()
        await self.part.loading.start(self.store, self.settings, self.catalogue)
        await self.work_off()
        self.first_requests = self.first_requests or self.requests
        for name in self.part.loading.then:
            await queue_run(self.store, self.catalogue, name)
            await self.work_off()
        runs = await self._since(before)
        self.first = self.first or runs
        return runs

    async def run_again(self, **params: Any) -> list[Run]:
        """Run the jobs that loaded the first records once more; return the finished runs.

        `params` are given to the jobs that have parameters of these names.
        """
        before = await self._newest()
        for run in self.first:
            unknown = unknown_params(self.catalogue.get(run.job), params)
            more = {name: value for name, value in params.items() if name not in unknown}
            await queue_run(self.store, self.catalogue, run.job, {**run.params, **more})
            await self.work_off()
        return await self._since(before)

    async def runs(self) -> list[Run]:
        """Return all runs of the source, the oldest first."""
        return await self._since(0)

    async def work_off(self) -> None:
        """Execute all queued runs in this process, and those that they queue."""
        while not await self.is_idle():
            worker = Worker(self.catalogue, self.store, self.settings, poll_seconds=_POLL_SECONDS)
            task = asyncio.create_task(worker.run(), name="worker")
            try:
                await self.until(self.is_idle, task)
            finally:
                worker.drain()
                await asyncio.wait({task})
            task.result()

    async def is_idle(self) -> bool:
        """Return whether no run of the source is unfinished."""
        unfinished = await list_runs(self.store, unfinished=True)
        return not any(run.job in self.catalogue.jobs for run in unfinished)

    async def until(self, condition: Callable[[], Any], *tasks: asyncio.Task[Any]) -> None:
        """Wait for a condition, while none of the tasks ends."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                while not await condition():
                    assert not any(task.done() for task in tasks), "the worker ended"
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            runs = "; ".join(
                f"{run.job} {run.state}, attempt {run.attempt}, {run.progress}"
                for run in await list_runs(self.store, unfinished=True)
            )
            raise TimeoutError(f"Unfinished after {_TIMEOUT_SECONDS:g} seconds: {runs}") from None

    async def start_worker(self) -> Process:
        """Start `hasat worker` as a process of its own."""
        command = [sys.executable, "-m", "hasat", "worker"]
        return await asyncio.create_subprocess_exec(
            *command, env=self.environ, stderr=asyncio.subprocess.DEVNULL
        )

    async def records(self) -> dict[str, int]:
        """Return the number of records by dataset, without empty ones."""
        query = "SELECT dataset, records FROM feed.head WHERE dataset = ANY (%s) AND records > 0"
        names = [dataset.name for dataset in self.source.datasets]
        async with self.store.connection() as conn:
            return dict(await (await conn.execute(query, [names])).fetchall())

    async def heads(self) -> Sequence[Any]:
        """Return what is published: digest and position of every dataset that is not empty."""
        query = (
            "SELECT dataset, epoch, seq, records, digest FROM feed.head"
            " WHERE dataset = ANY (%s) AND records > 0 ORDER BY dataset"
        )
        names = [dataset.name for dataset in self.source.datasets]
        async with self.store.connection() as conn:
            return await (await conn.execute(query, [names])).fetchall()

    async def value(self, query: QueryNoTemplate, *values: Any) -> Any:
        """Return the only value of a query."""
        async with self.store.connection() as conn:
            row = await (await conn.execute(query, values)).fetchone()
        return row[0] if row else None

    @property
    def requests(self) -> int:
        """The requests that the simulator has received."""
        return self.simulation.requests.total()

    def app(self) -> FastAPI:
        """Return the API and the dashboard over the mirror."""
        sources = [self.source]
        app = create_app(self.settings, self.store, self.catalogue, sources)
        add_pages(app, self.settings, self.store, self.catalogue, sources)
        return app

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve the API on loopback and yield its address."""
        listening = bind("127.0.0.1", 0)
        listener = Listener(self.app(), listening)
        await listener.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listener.drain()
            await listener.wait_closed()

    async def _newest(self) -> int:
        runs = await list_runs(self.store, limit=1)
        return runs[0].id if runs else 0

    async def _since(self, run: int) -> list[Run]:
        runs = reversed(await list_runs(self.store, limit=500))
        # A worker of its own process also runs jobs of the platform.
        return [one for one in runs if one.id > run and one.job in self.catalogue.jobs]


@asynccontextmanager
async def open_mirror(
    source: Source, server_url: str, folder: Path, overrides: Mapping[str, Any] | None = None
) -> AsyncIterator[Mirror]:
    """Start the simulator of a source, and open an empty database that its jobs fill from it.

    The clock of the simulation stands still. `overrides` are settings of the source.
    """
    part = demo_part(source)
    if part is None:
        raise UsageError(
            msg("The source {name} has no simulator with settings.", name=source.name),
            remedy=msg("Declare `simulator` with `settings`, or `demo`."),
        )
    folder.mkdir(parents=True, exist_ok=True)
    demo_folder = DemoFolder(folder, began := datetime.now(UTC), began)
    simulation = part.simulation(demo_folder)
    simulation.clock.set_speed(0)
    gate = Gate(simulation)
    migrations = [one.migration_set for one in all_sources()]
    async with (
        throw_away_database(server_url, migrations) as database,
        simulate(simulation) as address,
    ):
        content = {
            "sources": [source.name],
            source.name: {**part.settings(demo_folder, address), **(overrides or {})},
            "jobs": {"heartbeat_seconds": 0.5, "stalled_seconds": 3},
        }
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "hasat.yaml").write_text(yaml.safe_dump(content), "utf-8")
        own = {
            "HASAT_HOME": str(folder),
            "HASAT_CONFIG": str(config),
            "HASAT_DATABASE_URL": database.url,
        }
        settings = load_settings(environ=own)
        catalogue = Catalogue.of([replace(job, cron=None) for job in source.all_jobs], settings)
        async with open_store(settings, migrations) as store:
            environ = {**without_settings(os.environ), **own}
            yield Mirror(source, part, simulation, gate, settings, store, catalogue, environ)
