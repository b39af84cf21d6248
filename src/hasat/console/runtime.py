"""The parts of an installation assembled for a command: sources, jobs, migrations, store."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar

from hasat.console import context, output
from hasat.errors import NotFoundError
from hasat.jobs import Catalogue, platform_jobs
from hasat.jobs.platform_jobs import ARCHIVES_JOB
from hasat.jobs.runs import count_live_workers
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source.installed import all_datasets, all_rebuilds, all_sources, missing_configuration
from hasat.store import MigrationSet, Store, has_database, open_store
from hasat.store.audit import audited, command_actor

T = TypeVar("T")


def build_catalogue(settings: Settings) -> Catalogue:
    """Return every job of the platform and its sources, with the operator's settings applied.

    The jobs of a source that is not configured are disabled unless the operator enables them.
    """
    jobs = [*platform_jobs(all_datasets(), settings.archives.min_interval, all_rebuilds())]
    for source in all_sources():
        lacking = missing_configuration(source, settings) is not None
        jobs += [replace(job, enabled=False) if lacking else job for job in source.all_jobs]
    return Catalogue.of(jobs, settings)


def source_migrations() -> tuple[MigrationSet, ...]:
    """Return the migrations that sources add to those of the platform."""
    return tuple(source.migration_set for source in all_sources())


def open_migrated_store(
    settings: Settings, pool_size: int | None = None, *, for_requests: bool = False
) -> AbstractAsyncContextManager[Store]:
    """Open the store with the migrations of every source applied."""
    return open_store(settings, source_migrations(), pool_size, for_requests=for_requests)


def check_database(settings: Settings) -> None:
    """Raise NotFoundError if the folder has no database: its name is probably misspelt."""
    if not has_database(settings):
        raise NotFoundError(
            msg("There is no database in {home}.", home=settings.home),
            remedy=msg("Check --home or HASAT_HOME. `hasat up` creates a database there."),
        )


def open_existing_store(
    settings: Settings, pool_size: int | None = None
) -> AbstractAsyncContextManager[Store]:
    """Open the store for a command that has no use for an empty database: it creates none."""
    check_database(settings)
    return open_migrated_store(settings, pool_size)


def run_with_store(
    settings: Settings, work: Callable[[Store], Awaitable[T]], *, creates: bool = False
) -> T:
    """Open the store, run one function with it and return its result.

    Without `creates`, a folder without a database is an error.
    """
    opened = open_migrated_store if creates else open_existing_store

    async def perform() -> T:
        async with opened(settings) as store:
            return await work(store)

    return context.run_async(perform())


def with_audit(
    action: str,
    target: object,
    work: Callable[[Store], Awaitable[T]],
    *,
    reason: str | None = None,
    takes_long: bool = False,
    **detail: Any,
) -> Callable[[Store], Awaitable[T]]:
    """Wrap a function that changes state so that it writes an audit record."""

    async def perform(store: Store) -> T:
        actor = command_actor()
        async with audited(
            store, actor, action, target, reason=reason, takes_long=takes_long, **detail
        ):
            return await work(store)

    return perform


async def archive_without_workers(store: Store, settings: Settings) -> None:
    """Write the archives that are due if no worker is running that would write them."""
    from hasat.jobs import run_in_foreground

    catalogue = build_catalogue(settings)
    job = catalogue.get(ARCHIVES_JOB)
    if not job.enabled or await count_live_workers(store, settings):
        return
    assert job.wanted is not None
    async with store.connection() as connection:
        if not await job.wanted(connection):
            return
    run = await run_in_foreground(catalogue, store, settings, job.name)
    if run.outcome == "failed":
        output.note(run.message or msg("Archives could not be written."))
