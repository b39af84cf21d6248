"""The image: its wheel is built from exactly the files that are copied into it, and starts."""

from pathlib import Path

import pytest

from support.clean_environment import PROJECT, build_wheel, make_environment, run
from support.container_context import copy_context
from support.processes import Installation, eventually


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel, as in the image."""
    folder = tmp_path_factory.mktemp("image")
    copy_context(PROJECT, PROJECT / "deploy/Containerfile", folder / "src", ".containerignore")
    wheel = build_wheel(folder / "src", folder)
    return make_environment(folder / "opt", wheel, whole=True)


def test_the_image_has_a_complete_package(installed: Path, hosted: Installation) -> None:
    package = PROJECT / "src/hasat"
    written = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    [packed] = installed.parent.glob("lib/*/site-packages/hasat")
    installed_files = {path.relative_to(packed) for path in packed.rglob("*")}
    bundled = Path("web/islands")
    missing = {path for path in written - installed_files if not path.is_relative_to(bundled)}
    assert not {path for path in missing if "__pycache__" not in path.parts}

    where = run(str(installed / "python"), "-c", "import hasat; print(hasat.__file__)")
    assert where.startswith(str(installed.parent))
    assert run(str(installed / "hasat"), "--version").startswith("hasat ")
    hosted.program = [str(installed / "hasat")]
    assert hosted.json("config", "check")
    hosted.start("up")
    eventually(hosted.ready, "the image serves")
    for page in ("/", "/taxpayers", "/docs", "/static/hasat.css", "/openapi.json"):
        # The first request for a page may take longer than one waits for it.
        response = eventually(lambda path=page: hosted.get(path), f"{page} responds")
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
