"""Every command of the tutorials for the four roles, executed in order against the demo."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Installation, eventually

# One process runs all of them, so that one demo serves them.
pytestmark = pytest.mark.xdist_group("tutorials")

TUTORIALS = Path(__file__).parents[2] / "docs/tutorial"
ROLES = ("integrator", "gis", "football", "operator")
ADDRESS = "http://127.0.0.1:8787"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The demo once every source has data that the tutorials show."""
    demo = Installation(tmp_path_factory.mktemp("demo") / "home")
    process = demo.start("demo")

    def count(dataset: str) -> int:
        response = demo.get(f"/api/v1/{dataset}/digest")
        return response.json()["count"] if response is not None and response.is_success else 0

    for dataset, least in (("einvoice", 3_500), ("fixtures", 300), ("parcels", 20)):
        eventually(lambda d=dataset, n=least: count(d) >= n, f"{dataset} has {least} records")
    try:
        yield demo
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        demo.end()


@pytest.mark.parametrize("role", ROLES)
def test_the_turkish_tutorial_shows_the_same_commands(role: str) -> None:
    assert shown_commands(role, ".tr") == shown_commands(role)


@pytest.mark.parametrize("role", ROLES)
def test_every_command_of_a_tutorial_works(demo: Installation, tmp_path: Path, role: str) -> None:
    commands = shown_commands(role)
    assert any(command.startswith("hasat ") for command in commands)
    folder = demo.home.parent / ".demo"
    environ = {
        **demo.environ,
        "HASAT_HOME": str(folder),
        "HASAT_CONFIG": str(folder / "config"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = "\n".join(["set -eu", *commands])
    done = subprocess.run(
        ["bash", "-c", script.replace(ADDRESS, demo.address)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    if role == "integrator":
        assert (tmp_path / "checked.xlsx").stat().st_size > 0
        assert "Valid: issued with this key and unchanged." in done.stdout


def shown_commands(role: str, language: str = "") -> list[str]:
    """Return the commands in the blocks of a tutorial, but those that name the reader's folders."""
    page = (TUTORIALS / f"{role}{language}.md").read_text("utf-8")
    lines = re.findall(r"^    (\S.*)$", page, re.MULTILINE)
    return [line for line in lines if not line.startswith("export ")]
