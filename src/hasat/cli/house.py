"""The parts of this installation put together: sources, jobs, migrations, the store."""

from contextlib import AbstractAsyncContextManager

from hasat.jobs import Catalogue, platform_jobs
from hasat.settings import Settings
from hasat.sources.registry import all_sources
from hasat.store import MigrationSet, Store, open_store


def catalogue_of(settings: Settings) -> Catalogue:
    """Every job of the platform and its sources, with the operator's changes applied."""
    jobs = [*platform_jobs(), *(job for source in all_sources() for job in source.jobs)]
    return Catalogue.of(jobs, settings)


def migrations_of() -> tuple[MigrationSet, ...]:
    """The migrations that sources add to the platform's own."""
    return tuple(
        MigrationSet(source.name, source.migrations)
        for source in all_sources()
        if source.migrations is not None
    )


def open_house(settings: Settings, **options: int) -> AbstractAsyncContextManager[Store]:
    """The store, migrated for every source."""
    return open_store(settings, migrations_of(), **options)
