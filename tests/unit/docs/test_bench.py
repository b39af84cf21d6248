"""`make bench` runs every script of bench/ and writes a page of what they measured."""

import importlib.util
import re
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[3]
SCRIPTS = {path.stem: path for path in (PROJECT / "bench").glob("[a-z]*.py")}


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_runner", PROJECT / "scripts/bench.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_run_with_options_that_it_has(runner: ModuleType) -> None:
    assert {bench.name for bench in runner.BENCHES} == {*SCRIPTS}
    for bench in runner.BENCHES:
        text = SCRIPTS[bench.name].read_text("utf-8")
        for option in ("--json", *re.findall(r"--[a-z-]+", f"{bench.whole} {bench.quick}")):
            assert f'"{option}"' in text, f"{bench.name} has no option {option}"


def test_the_page_names_machine_date_versions_and_what_failed(runner: ModuleType) -> None:
    feed, scan = (one for one in runner.BENCHES if one.name in ("feed", "scan"))
    times = {"median": 0.001, "p99": 0.0123}
    found = dict.fromkeys(("a page", "a bare page", "a wake-up", "a bare wake-up"), times)
    results = [
        runner.Result(feed, "--changes 7", 90.0, tuple(feed.figures(found))),
        runner.Result(scan, "", 30.0, (), "no result after 20 minutes"),
    ]
    page = runner.page(results, datetime(2026, 5, 4, 3, 2, tzinfo=UTC), 0.25, quick=False)
    assert "| date | 2026-05-04 03:02 UTC |" in page
    assert "| duration | 2 minutes |" in page
    assert re.search(r"\| machine \| \d+ x .+ GB, .+ \|", page)
    assert re.search(r"\| versions \| Hasat \S+, Python 3\.\S+, PostgreSQL \d+\S*, psycopg", page)
    assert "| a page, p99 | 12.3 ms | 30 ms | `feed.py --changes 7` |" in page
    assert "| scan | no result after 20 minutes |  | `scan.py` |" in page
    assert "quick run" not in page
    assert "quick run" in runner.page(results, datetime.now(UTC), 0.25, quick=True)
