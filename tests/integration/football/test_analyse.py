"""The examples of docs/how-to/analyse.md, run as they are printed."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hasat.api.app import create_app
from hasat.console.runtime import build_catalogue
from hasat.feed.archive import write_archives
from hasat.sim import Simulation
from hasat.source.installed import all_sources
from hasat.sources.football.endpoints import DATASETS
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.simulator.server import FOOTBALL, SimulatedApi
from hasat.testing.http import app_client
from support.football_api import DAY, NOW, Collector, StartCollector, api_response

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "analyse.md"
_FILES = ("fixtures", "fixture_events", "fixture_statistics")


def examples(language: str) -> list[str]:
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


async def printed_by(code: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        cwd=folder,
        # A library must not start a thread for every processor of a busy machine.
        env={**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def fill(here: Collector) -> None:
    """Load a simulated season with odds, and a correction."""
    start = (NOW - 40 * DAY).isoformat()
    world = {"leagues": 2, "teams": 6, "season_start": start, "odd_percent": 0}
    api = SimulatedApi(Simulation(FOOTBALL, seed=4, options=world))

    async def receive(endpoint: str, rows: Sequence[Any], **parameters: str) -> None:
        response = api_response(endpoint, list(rows), **parameters)
        await load(here.store, [response], run=None, retention_days=90)

    for league in ("39", "40"):
        season = {"league": league, "season": "2026"}
        rows = api.read("fixtures", season, NOW)
        await receive("fixtures", rows, **season)
        over = [one["fixture"]["id"] for one in rows if one["fixture"]["status"]["short"] == "FT"]
        ids = {"ids": "-".join(map(str, over[:20]))}
        await receive("fixtures", api.read("fixtures", ids, NOW), **ids)
    corrected = next(one for one in rows if one["fixture"]["status"]["short"] == "FT")
    corrected["goals"]["home"] += 1
    await receive("fixtures", rows, **season)
    odds = {"fixture": "867946"}
    await receive("odds", api.read("odds", odds, NOW), **odds)


async def download(here: Collector, folder: Path) -> None:
    for name in _FILES:
        await write_archives(here.store, here.settings, DATASETS[name])
    app = create_app(here.settings, here.store, build_catalogue(here.settings), all_sources())
    async with app_client(app) as client:
        for name in _FILES:
            path = f"/api/v1/{name}/archives/latest?format=parquet"
            (folder / f"{name}.parquet").write_bytes((await client.get(path)).content)
        sheet = "/api/v1/fixtures?league_id=39&season=2026&format=xlsx"
        assert (await client.get(sheet)).content.startswith(b"PK")


async def test_every_example_runs_and_the_libraries_agree(
    start_collector: StartCollector, tmp_path: Path
) -> None:
    async with start_collector(lambda _path, _parameters: [], 39) as here:
        await fill(here)
        await download(here, tmp_path)
        printed = [await printed_by(code, tmp_path) for code in examples("python")]
        tables = [[line for line in text.splitlines() if line] for text in printed]
        assert len(tables) == 3
        header, *lines = tables[0]
        assert header == "league_id,season,team,played,points,difference"
        assert len(lines) == 12
        for other in tables[1:]:
            assert other == [header, *lines]
        # The view has the same figures.
        seasons = await here.rows(
            "SELECT league_id || ',' || season || ',' || team || ',' || played || ',' ||"
            " 3 * won + drawn || ',' || scored - conceded FROM mart.team_seasons"
        )
        assert sorted(text for (text,) in seasons) == sorted(lines)
        async with here.store.connection() as conn:
            for query in examples("sql"):
                # Without parameters, so that a percent sign is itself.
                found = await (await conn.execute(query.encode())).fetchall()
                assert found, query
