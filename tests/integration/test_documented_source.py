"""The sources in docs/reference/source.md work as they are shown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hasat.api.app import create_app
from hasat.api.diagnostics import Finding, check_database
from hasat.cli import app as command_line
from hasat.jobs import Catalogue, run_in_foreground
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client, undocumented_operations
from support.installed import installed

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

BLOCK = re.compile(r'(?ms)^```python title="numbers.py"\n(.*?)^```$')
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "source.md"


def documented_sources() -> list[Source]:
    """Return the sources of the page; the later ones continue the earlier ones."""
    namespace: dict[str, Any] = {}
    found = []
    for text in BLOCK.findall(PAGE.read_text("utf-8")):
        exec(text, namespace)  # noqa: S102 - it is a page of this repository
        found.append(namespace["SOURCE"])
    return found


async def test_the_job_of_the_reference_runs(settings: Settings) -> None:
    source = documented_sources()[0]
    async with open_store(settings, [source.migration_set]) as store:
        catalogue = Catalogue.of(source.all_jobs, settings)
        outcomes = [
            (await run_in_foreground(catalogue, store, settings, "squares_compute")).outcome
            for _ in range(2)
        ]
    assert outcomes == ["done", "nothing"]


async def test_the_parts_of_the_reference_work(settings: Settings) -> None:
    source = documented_sources()[1]
    async with open_store(settings, [source.migration_set]) as store:
        catalogue = Catalogue.of(source.all_jobs, settings)
        app = create_app(settings, store, catalogue, [source])
        assert undocumented_operations(app) == []
        async with app_client(app) as client:
            health = (await client.get("/health")).json()["checks"]["squares"]
            assert health == {"status": "Degraded", "description": "0 squares"}
            [finding] = await source_findings(store, settings, source)
            assert (finding.grade, "squares_compute" in finding.message) == ("warning", True)
            await run_in_foreground(catalogue, store, settings, "squares_compute")
            assert (await client.get("/health")).json()["checks"]["squares"]["status"] == "Healthy"
            assert "numbers_squares 100.0" in (await client.get("/metrics")).text
            assert (await client.get("/api/v1/numbers/count")).json() == {"squares": 100}
            [finding] = await source_findings(store, settings, source)
            assert finding.grade == "ok"


def test_the_command_of_the_reference_works(tmp_path: Path, database: ThrowAwayDatabase) -> None:
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": database.url}
    with installed(numbers=documented_sources()[1]):
        done = CliRunner().invoke(command_line, ["numbers", "count", "--json"], env=environ)
    assert json.loads(done.stdout) == {"squares": 0}, done.output


async def source_findings(store: Store, settings: Settings, source: Source) -> list[Finding]:
    found = await check_database(store, settings, [source])
    return [one for one in found if one.check == source.name]
