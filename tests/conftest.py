"""Databases for tests: a server per run, a throw-away database per test."""

import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from hasat.settings import Settings, load_settings
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase, database_server, throw_away_database
from support.football_api import Collecting, collecting_from
from support.house import House, furnish

# A loaded machine is slow; that is no failure of the code.
hypothesis_settings.register_profile(
    "hasat", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("hasat")

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
def migrations() -> Sequence[MigrationSet]:
    """Those that the database has beside the platform's; tests of a source name its own."""
    return []


@pytest.fixture
def database(
    background: BlockingPortal, server_url: str, migrations: Sequence[MigrationSet]
) -> Iterator[ThrowAwayDatabase]:
    """A migrated database that only this test knows."""
    made = throw_away_database(server_url, migrations)
    with background.wrap_async_context_manager(made) as database:
        yield database


@pytest.fixture
def collecting(
    database: ThrowAwayDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Collecting:
    """The football jobs, with an API that says what the test wants."""
    return partial(collecting_from, database, tmp_path, monkeypatch)


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path) -> Settings:
    """Settings that use the throw-away database."""
    return database.settings(tmp_path)


@pytest.fixture
async def store(settings: Settings, migrations: Sequence[MigrationSet]) -> AsyncIterator[Store]:
    async with open_store(settings, migrations) as store:
        yield store


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Hasat as a person runs it, in a folder of its own."""
    house = House(tmp_path / "home")
    yield house
    house.end()


@pytest.fixture
def hosted(database: ThrowAwayDatabase, house: House) -> House:
    """The same on the tests' server, for what says nothing about the embedded one."""
    house.environ["HASAT_DATABASE_URL"] = database.url
    return house


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory, background: BlockingPortal) -> Path:
    """A home with a database in it that is never started again, only copied."""
    home = tmp_path_factory.mktemp("made")
    with background.wrap_async_context_manager(
        open_store(load_settings(environ={"HASAT_HOME": str(home)}))
    ):
        pass
    # Processes are killed in these tests, not machines: nobody has to wait for the disk.
    (home / "postgres/data/postgresql.auto.conf").write_text("fsync = off\n")
    return home


@pytest.fixture
def furnished(made_home: Path, tmp_path: Path) -> Path:
    """A home whose database was made before: much cheaper than to make one."""
    home = tmp_path / "home"
    furnish(home, made_home)
    return home
