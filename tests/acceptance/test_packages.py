"""The example of a source, and a new one, as packages of their own: installed and tested."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hasat.testing.database import SERVER_VARIABLE

PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "examples" / "hasat-source-example"


def run(*command: object, folder: Path, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", ["example", "air_quality"])
def test_a_package_is_installed_and_passes_its_tests(
    tmp_path: Path, server_url: str, name: str
) -> None:
    if name == "example":
        ignored = shutil.ignore_patterns("__pycache__")
        package = Path(shutil.copytree(EXAMPLE, tmp_path / "package", ignore=ignored))
    else:
        package = Path(run("hasat", "source", "new", name, folder=tmp_path).strip())
    target = tmp_path / "installed"
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    run(
        "pip",
        "install",
        "--quiet",
        *offline,
        "--target",
        target,
        tmp_path / package,
        folder=tmp_path,
    )
    environ = {"PYTHONPATH": str(target), SERVER_VARIABLE: server_url}
    listed = run("hasat", "sim", "list", folder=tmp_path, **environ)
    assert name in listed
    tested = run(
        "pytest", "-q", "-p", "no:cacheprovider", "tests", folder=tmp_path / package, **environ
    )
    assert " passed" in tested
    assert "failed" not in tested
    assert "warning" not in tested
