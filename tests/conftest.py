"""Fixtures: a database server per run, a throw-away database per test, installations."""

import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path

import httpx2
import pytest
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from hasat.api.app import create_app
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase, throw_away_database
from hasat.testing.http import app_client
from support.ast_parsing import parse_in_one_thread
from support.football_api import StartCollector, start_collector_from
from support.processes import Installation, copy_database

parse_in_one_thread()

# No deadlines: the machine may be loaded.
hypothesis_settings.register_profile(
    "hasat", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("hasat")

# A test run in the background ignores SIGINT, and its child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def background(hasat_portal: BlockingPortal) -> BlockingPortal:
    """A separate event loop, so that tests with and without one can use the fixtures."""
    return hasat_portal


@pytest.fixture(scope="session")
def server_url(hasat_server_url: str) -> str:
    """The server that HASAT_TEST_SERVER chooses."""
    return hasat_server_url


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    """Migrations besides those of the platform; tests of a source override this."""
    return []


@pytest.fixture
def database(
    background: BlockingPortal, server_url: str, migrations: Sequence[MigrationSet]
) -> Iterator[ThrowAwayDatabase]:
    """A migrated database for one test."""
    made = throw_away_database(server_url, migrations)
    with background.wrap_async_context_manager(made) as database:
        yield database


@pytest.fixture
def start_collector(
    database: ThrowAwayDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StartCollector:
    """The football jobs, with an API that says what the test wants."""
    return partial(start_collector_from, database, tmp_path, monkeypatch)


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path) -> Settings:
    """Settings that use the throw-away database."""
    return database.settings(tmp_path)


@pytest.fixture
async def store(settings: Settings, migrations: Sequence[MigrationSet]) -> AsyncIterator[Store]:
    async with open_store(settings, migrations) as store:
        yield store


@pytest.fixture
def sources() -> Sequence[Source]:
    """The sources of `app`; tests of a source override this."""
    return []


@pytest.fixture
def app(settings: Settings, store: Store, sources: Sequence[Source]) -> FastAPI:
    """The API without jobs; tests of other apps override this."""
    return create_app(settings, store, Catalogue.of([], settings), sources)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that calls the app in this process."""
    async with app_client(app) as client:
        yield client


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation in its own folder, with the embedded database."""
    installation = Installation(tmp_path / "home")
    yield installation
    installation.end()


@pytest.fixture
def hosted(database: ThrowAwayDatabase, installation: Installation) -> Installation:
    """An installation on the database server of the tests, which is cheaper."""
    installation.environ["HASAT_DATABASE_URL"] = database.url
    return installation


@pytest.fixture(scope="session")
def template_home(tmp_path_factory: pytest.TempPathFactory, background: BlockingPortal) -> Path:
    """A home with a database that is only copied, never started again."""
    home = tmp_path_factory.mktemp("made")
    with background.wrap_async_context_manager(
        open_store(load_settings(environ={"HASAT_HOME": str(home)}))
    ):
        pass
    # These tests kill processes, not machines, so fsync is not needed.
    (home / "postgres/data/postgresql.auto.conf").write_text("fsync = off\n")
    return home


@pytest.fixture
def home_with_database(template_home: Path, tmp_path: Path) -> Path:
    """A home with a copied database, which is cheaper than a new one."""
    home = tmp_path / "home"
    copy_database(home, template_home)
    return home
