"""Fixtures for tests of sources, as a plug-in of pytest (entry point `pytest11`).

Their names begin with `hasat_`, because every project that has Hasat installed gets them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from hasat.testing.database import ThrowAwayDatabase


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that keeps a class in one process where pytest-xdist is used."""
    config.addinivalue_line("markers", "xdist_group(name): run these tests in one process")


@pytest.fixture(scope="session")
def hasat_portal() -> "Iterator[BlockingPortal]":
    """A separate event loop, so that tests with and without one can use the fixtures."""
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="session")
def hasat_server_url(hasat_portal: "BlockingPortal") -> Iterator[str]:
    """The URL of the PostgreSQL server for tests, which HASAT_TEST_SERVER chooses."""
    from hasat.testing.database import database_server

    with hasat_portal.wrap_async_context_manager(database_server()) as url:
        yield url


@pytest.fixture
def hasat_database(
    hasat_portal: "BlockingPortal", hasat_server_url: str
) -> "Iterator[ThrowAwayDatabase]":
    """A database for one test, with the tables of the platform and of every installed source."""
    from hasat.source.installed import all_sources
    from hasat.testing.database import throw_away_database

    migrations = [source.migration_set for source in all_sources()]
    made = throw_away_database(hasat_server_url, migrations)
    with hasat_portal.wrap_async_context_manager(made) as database:
        yield database
