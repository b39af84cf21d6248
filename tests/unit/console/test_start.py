"""A command imports only what it needs, and creates nothing that it does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.forks import run_hasat

HEAVY = {"numpy", "shapely", "pyproj", "pyarrow", "httpx2", "prometheus_client", "procrastinate"}
SERVER = {"fastapi", "starlette", "uvicorn", "jinja2", "mcp"}


def hasat(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HASAT_")}
    return run_hasat("--home", str(home), *words, environ={**kept, **environ})


def imported(statements: str) -> set[str]:
    """Return the top-level modules that a new Python has loaded after some statements."""
    code = f"{statements}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_needs_no_settings_and_no_database() -> None:
    loaded = imported(
        "import sys\nsys.argv = ['hasat', '--version']\nfrom hasat.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert not loaded & (HEAVY | SERVER | {"pydantic", "psycopg", "structlog", "asyncio"})


def test_the_list_of_jobs_needs_no_libraries_of_the_jobs() -> None:
    loaded = imported(
        "import hasat.cli.commands.jobs\n"
        "from hasat.console.runtime import build_catalogue\n"
        "from hasat.settings import load_settings\n"
        "build_catalogue(load_settings(environ={}))"
    )
    assert "psycopg" in loaded
    assert not loaded & (HEAVY | SERVER)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list"),
        ("jobs", "history"),
        ("jobs", "show", "1"),
        ("jobs", "retry", "1"),
        ("holds", "list"),
        ("holds", "approve", "1"),
        ("quota",),
        ("keys", "list"),
        ("audit",),
        ("archive", "list", "einvoice"),
        ("watchlists", "list"),
        ("webhooks", "list"),
        ("receipt", "list"),
        ("rebuild", "fixtures"),
        ("db", "backup", "monday.dump"),
        ("gib", "runs"),
        ("gib", "lookup", "1234567890"),
        ("gib", "search", "makine"),
        ("tkgm", "export", "parcels.csv"),
        ("football", "scorers", "39", "2026"),
    ],
)
def test_a_misspelt_home_is_an_error_and_no_new_database(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = tmp_path / "misspelt"
    done = hasat(home, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"There is no database in {home}." in done.stderr
    assert "--home" in done.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    ("word", "meant"),
    [("jbos", "jobs"), ("qouta", "quota"), ("tkmg", "tkgm"), ("fotball", "football")],
)
def test_a_misspelt_command_is_corrected(tmp_path: Path, word: str, meant: str) -> None:
    done = hasat(tmp_path, word, "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Did you mean '{meant}'?" in done.stderr
