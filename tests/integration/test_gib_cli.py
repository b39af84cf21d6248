"""`hasat gib lookup` and `hasat gib search` as a person types them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from feed_toys import run
from gib_people import MIGRATIONS, load, people, person
from hasat.clock import local_time
from hasat.settings import Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import Store, open_store
from hasat.testing.database import throw_away_database

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def settings(background: BlockingPortal, server_url: str, tmp_path: Path) -> Iterator[Settings]:
    with background.wrap_async_context_manager(
        throw_away_database(server_url, MIGRATIONS)
    ) as database:
        yield database.settings(tmp_path)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    async with open_store(settings, MIGRATIONS) as store:
        yield store


class Hasat:
    """The command line over the test's own database."""

    def __init__(self, settings: Settings) -> None:
        assert settings.database.url is not None
        self._environ = {
            **os.environ,
            "COLUMNS": "200",
            "HASAT_HOME": str(settings.home),
            "HASAT_DATABASE_URL": settings.database.url.get_secret_value(),
        }

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hasat", "gib", *words],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def hasat(settings: Settings) -> Hasat:
    return Hasat(settings)


async def test_a_taxpayer_now_and_then(hasat: Hasat, store: Store) -> None:
    empty = hasat("lookup", "1234567890")
    assert (empty.returncode, "not been filled" in empty.stderr) == (1, True)
    await load(store, people(person("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x")))
    first = await run(
        store, people(person("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x")), dataset=EINVOICE
    )
    await run(store, people(person("1234567890", "GÜNEŞ A.Ş.")), dataset=EINVOICE)
    assert hasat.json("lookup", "1234567890")["einvoice"]["title"] == "GÜNEŞ A.Ş."
    then = hasat("lookup", "1234567890", "--as-of", local_time(first.committed_at))
    assert "IŞIK A.Ş." in then.stdout
    assert "urn:mail:pk@x" in then.stdout
    missing = hasat("lookup", "1234567890", "--dataset", "edespatch")
    assert missing.returncode == 1
    assert "not an active taxpayer of edespatch" in missing.stderr
    assert hasat("lookup", "12").returncode == 2
    gone = hasat("lookup", "1234567890", "--as-of", "2001-01-01")
    assert (gone.returncode, "not known" in gone.stderr) == (1, True)


async def test_a_search_finds_and_says_what_would_make_it_faster(
    hasat: Hasat, store: Store
) -> None:
    await load(store, people(person("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x")))
    slow = hasat("search", "isik")
    assert (slow.returncode, "1234567890" in slow.stdout) == (0, True)
    assert "hasat jobs run gib_search" in slow.stderr
    found = hasat.json("search", "--alias", "PK@X")
    assert [item["identifier"] for item in found["einvoice"]["items"]] == ["1234567890"]
    assert found["edespatch"]["totalCount"] == 0
    nothing = hasat("search", "zzz", "--dataset", "einvoice")
    assert (nothing.returncode, "0 found" in nothing.stdout) == (0, True)
    assert hasat("search").returncode == 2
