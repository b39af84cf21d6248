"""The image: its wheel is built from exactly the files that are copied into it, and starts."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from support.container_context import copy_context
from support.processes import Installation, eventually

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel, as in the image."""
    folder = tmp_path_factory.mktemp("image")
    copy_context(PROJECT, PROJECT / "deploy/Containerfile", folder / "src", ".containerignore")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    _run(*pip, *build, "--wheel-dir", str(folder), str(folder / "src"))
    [wheel] = folder.glob("*.whl")
    environment = folder / "opt"
    venv.create(environment)
    python = environment / "bin/python"
    _run(*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # The requirements of this environment; a .pth file adds no editable installation.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    return environment / "bin"


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_image_has_a_complete_package(installed: Path, hosted: Installation) -> None:
    package = PROJECT / "src/hasat"
    written = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    [packed] = installed.parent.glob("lib/*/site-packages/hasat")
    installed_files = {path.relative_to(packed) for path in packed.rglob("*")}
    bundled = Path("web/islands")
    missing = {path for path in written - installed_files if not path.is_relative_to(bundled)}
    assert not {path for path in missing if "__pycache__" not in path.parts}

    where = _run(str(installed / "python"), "-c", "import hasat; print(hasat.__file__)")
    assert where.startswith(str(installed.parent))
    assert _run(str(installed / "hasat"), "--version").startswith("hasat ")
    hosted.program = [str(installed / "hasat")]
    assert hosted.json("config", "check")
    hosted.start("up")
    eventually(hosted.ready, "the image serves")
    for page in ("/", "/taxpayers", "/docs", "/static/hasat.css", "/openapi.json"):
        response = hosted.get(page)
        assert response is not None
        assert response.status_code == 200, page


@pytest.mark.parametrize("ignore_file", [".containerignore", ".dockerignore"])
def test_both_ignore_files_let_in_the_package_and_nothing_else(
    tmp_path: Path, ignore_file: str
) -> None:
    copy_context(PROJECT, PROJECT / "deploy/Containerfile", tmp_path, ignore_file)
    found = {
        file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()
    }
    assert {"hatch_build.py", "pyproject.toml", "src/hasat/__main__.py"} <= found
    # The example is the skeleton of `hasat source new`.
    wanted = ("src/hasat/", "examples/hasat-source-example/")
    assert {name for name in found if "/" in name and not name.startswith(wanted)} == set()
    assert not {name for name in found if "__pycache__" in name}
