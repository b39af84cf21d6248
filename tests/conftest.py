"""Databases for tests: a server per run, a throw-away database per test."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from hasat.settings import Settings
from hasat.store import Store, open_store
from hasat.testing.database import ThrowAwayDatabase, database_server, throw_away_database
from house import House

# A run that was put into the background ignores Ctrl-C, and so would every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def background() -> Iterator[BlockingPortal]:
    """An event loop of its own, so that tests with and without one can use the fixtures."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="session")
def server_url(background: BlockingPortal) -> Iterator[str]:
    """The server that HASAT_TEST_SERVER chooses."""
    with background.wrap_async_context_manager(database_server()) as url:
        yield url


@pytest.fixture
def database(background: BlockingPortal, server_url: str) -> Iterator[ThrowAwayDatabase]:
    """A migrated database that only this test knows."""
    with background.wrap_async_context_manager(throw_away_database(server_url)) as database:
        yield database


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path) -> Settings:
    """Settings that use the throw-away database."""
    return database.settings(tmp_path)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    async with open_store(settings) as store:
        yield store


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Hasat as a person runs it, in a folder of its own."""
    house = House(tmp_path / "home")
    yield house
    house.end()
