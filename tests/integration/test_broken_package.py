"""An installed package whose source cannot be imported is a finding, and stops nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hasat.testing.database import ThrowAwayDatabase

pytestmark = pytest.mark.any_server


# Modules by name: their text, and the reason that is reported.
BROKEN = {
    "missing": ("import bronze_of_nobody", "ModuleNotFoundError"),
    "unfinished": ("SOURCE = (", "SyntaxError"),
    "leaving": ("raise SystemExit(3)", "SystemExit"),
    "wrong": ("from hasat.source import Source\nSOURCE = Source(1)", "TypeError"),
    "contrary": (
        "from hasat.source import Source\nSOURCE = Source('x', 'X', strategies={'y': 1})",
        "ValueError",
    ),
    "foreign": ("SOURCE = 7", "is not a Source"),
}


def install(folder: Path) -> None:
    """Install a package with the broken sources, as pip does."""
    for name, (text, _) in BROKEN.items():
        (folder / f"cracked_{name}.py").write_text(text, "utf-8")
    package = folder / "hasat_cracked-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: hasat-cracked\nVersion: 1.0\n")
    entries = "".join(f"{name} = cracked_{name}:SOURCE\n" for name in BROKEN)
    (package / "entry_points.txt").write_text(f"[hasat.sources]\n{entries}")


def test_the_doctor_reports_it_and_commands_work(
    tmp_path: Path, database: ThrowAwayDatabase
) -> None:
    install(tmp_path)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HASAT_")},
        "PYTHONPATH": str(tmp_path),
        "HASAT_HOME": str(tmp_path / "home"),
        "HASAT_DATABASE_URL": database.url,
    }

    def hasat(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hasat", *words]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=120, check=False
        )

    done = hasat("doctor", "--json")
    found = [one for one in json.loads(done.stdout) if one["check"] == "source"]
    assert ({one["grade"] for one in found}, done.returncode) == ({"failure"}, 1)
    for name, (_, reason) in BROKEN.items():
        [message] = [one["message"] for one in found if f"source {name} " in one["message"]]
        assert reason in message
    jobs = json.loads(hasat("jobs", "list", "--json").stdout)
    assert {job["source"] for job in jobs} > {"gib", "tkgm", "football"}
    refused = hasat("leaving", "anything")
    assert refused.returncode == 1
    assert "cannot be loaded" in refused.stderr
    assert "Traceback" not in refused.stderr + done.stderr
