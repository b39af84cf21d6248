"""A worker that is killed -9 right after its N-th commit to a mirror: `commit_victim.py N`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hasat.console.runtime import build_catalogue, source_migrations
from hasat.feed.dataset import Dataset
from hasat.feed.reconcile import Reconcile
from hasat.jobs import Catalogue, Job, Outcome, RunContext, Worker
from hasat.settings import Settings, load_settings
from hasat.store import Store, open_store
from support.feed_toys import TOYS
from support.feed_toys import run as commit

TOY_STATES = ({"ball": {}, "kite": {}}, {"ball": {"red": True}}, {"ball": {}, "drum": {}})
TOY_ROWS = (2, 4, 6)
"""How many rows the states have changed after each of the commits."""


async def _commit_toys(context: RunContext) -> Outcome:
    """Commit one state after the other, going on where an earlier attempt was killed."""
    async with context.store.connection() as conn:
        cursor = await conn.execute("SELECT count(*) FROM feed.version")
        [(committed,)] = await cursor.fetchall()
    rows = 0
    for state in TOY_STATES[committed:]:
        counts = (await commit(context.store, state, run_id=context.run_id)).counts[TOYS.name]
        rows += counts.total
    return Outcome("done" if rows else "nothing", rows)


COMMITS_TOYS = Job("commits_toys", _commit_toys, "Commits toys.", source="toy_shop")


def lists_in(home: Path) -> dict[str, str]:
    """The lists that the sync is configured to read, by parameter."""
    return {box: str(home / f"{box}.xml") for box in ("pk", "gb")}


def catalogue_with_toys(settings: Settings) -> Catalogue:
    jobs = {job.name: job for job in build_catalogue(settings)}
    jobs["gib_sync"] = replace(jobs["gib_sync"], params=lists_in(settings.home))
    return Catalogue.of([*jobs.values(), COMMITS_TOYS], settings)


def die_after(commits: int) -> None:
    """Kill this process once that number of transactions on mirrors has been committed."""
    begin: Any = Reconcile.begin
    left = commits

    @asynccontextmanager
    async def begin_deadly(
        store: Store, datasets: Sequence[Dataset], **options: Any
    ) -> AsyncIterator[Reconcile]:
        nonlocal left
        async with begin(store, datasets, **options) as work:
            yield work
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    Reconcile.begin = begin_deadly  # type: ignore[assignment]


async def work() -> None:
    settings = load_settings()
    async with open_store(settings, source_migrations()) as store:
        await Worker(catalogue_with_toys(settings), store, settings).run()


if __name__ == "__main__":
    die_after(int(sys.argv[1]))
    asyncio.run(work())
