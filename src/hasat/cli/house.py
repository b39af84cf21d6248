"""The parts of this installation put together: sources, jobs, migrations, the store."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from hasat.cli import manners
from hasat.jobs import Catalogue, platform_jobs, run_in_foreground
from hasat.jobs.platform_jobs import ARCHIVES_JOB
from hasat.jobs.runs import count_live_workers
from hasat.settings import Settings
from hasat.sources.registry import all_datasets, all_sources
from hasat.store import MigrationSet, Store, open_store
from hasat.store.audit import audited, command_actor

if TYPE_CHECKING:
    from hasat.deliver.watch import Health

T = TypeVar("T")


def catalogue_of(settings: Settings) -> Catalogue:
    """Every job of the platform and its sources, with the operator's changes applied.

    The jobs of a source that is not set up are off until it is, or until they are switched on.
    """
    jobs = [*platform_jobs(all_datasets(), settings.archives.min_interval)]
    for source in all_sources():
        lacking = source.lacks is not None and source.lacks(settings) is not None
        jobs += [replace(job, enabled=False) if lacking else job for job in source.jobs]
    return Catalogue.of(jobs, settings)


async def archive_without_workers(store: Store, settings: Settings) -> None:
    """Write the archives that are due, if no worker is there to write them."""
    catalogue = catalogue_of(settings)
    job = catalogue.get(ARCHIVES_JOB)
    if not job.enabled or await count_live_workers(store, settings):
        return
    assert job.wanted is not None
    async with store.connection() as connection:
        if not await job.wanted(connection):
            return
    run = await run_in_foreground(catalogue, store, settings, job.name)
    if run.outcome == "failed":
        manners.note(run.message or "Archives could not be written.")


def migrations_of() -> tuple[MigrationSet, ...]:
    """The migrations that sources add to the platform's own."""
    return tuple(
        MigrationSet(source.name, source.migrations)
        for source in all_sources()
        if source.migrations is not None
    )


def health_of(store: Store, settings: Settings) -> "Health":
    """How to find out how the sources are: their own checks, by name."""
    from hasat.api.reports import source_report

    async def checks() -> dict[str, Mapping[str, Any]]:
        reports = [await source_report(source, store, settings) for source in all_sources()]
        return {name: check for one in reports for name, check in one.get("checks", {}).items()}

    return checks


def open_house(
    settings: Settings, pool_size: int | None = None, *, for_requests: bool = False
) -> AbstractAsyncContextManager[Store]:
    """The store, migrated for every source."""
    return open_store(settings, migrations_of(), pool_size, for_requests=for_requests)


def acting(
    action: str,
    target: object,
    work: Callable[[Store], Awaitable[T]],
    *,
    reason: str | None = None,
    takes_long: bool = False,
    **detail: Any,
) -> Callable[[Store], Awaitable[T]]:
    """Return the work of a command that changes state, with its audit record."""

    async def perform(store: Store) -> T:
        actor = command_actor()
        async with audited(
            store, actor, action, target, reason=reason, takes_long=takes_long, **detail
        ):
            return await work(store)

    return perform


def in_house(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """What a piece of work with the store comes to, for a command that needs nothing else."""

    async def perform() -> T:
        async with open_house(settings) as store:
            return await work(store)

    return manners.run_async(perform())
