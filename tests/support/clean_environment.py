"""Built packages, and environments that contain them and nothing but what they require."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
# Where npm could not be reached, the checkout has no map either.
_BUNDLE = PROJECT / "src/hasat/web/static/islands/made-from"
_BUILD = {} if _BUNDLE.exists() else {"HASAT_BUILD_WITHOUT_MAP": "1"}
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*words: str, cwd: Path | str = "/", **environ: str) -> str:
    """Run a command and return its output; fail with all of it."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_sdist(project: Path, into: Path) -> Path:
    """Build the sdist of a project, and return the folder that it unpacks to."""
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "sdist",
        "-d",
        str(into),
        cwd=project,
        **_BUILD,
    )
    [archive] = into.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def build_wheel(project: Path, into: Path) -> Path:
    """Build the wheel of a project without a download."""
    options = ("--no-build-isolation", "--no-deps", "--no-index")
    run(*_PIP, "wheel", *options, "--wheel-dir", str(into), str(project), **_BUILD)
    [wheel] = into.glob("*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path, *, whole: bool) -> Path:
    """Return the programs of a new environment with a wheel.

    It has the other packages of this environment if `whole` is set, else only those that the wheel
    requires without extras.
    """
    venv.create(folder)
    python = folder / "bin/python"
    run(*_PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    if whole:
        # A .pth file adds no editable installation.
        (packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    else:
        [installed] = Distribution.discover(name=wheel.name.partition("-")[0], path=[str(packages)])
        for part, path in _files_of(_required(installed.requires or ())):
            if not (packages / part).exists():
                (packages / part).parent.mkdir(exist_ok=True)
                (packages / part).symlink_to(path)
    return folder / "bin"


def _required(requirements: Iterable[str]) -> set[str]:
    """Return the names of the distributions that requirements need, and those they need."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        requirement = waiting.pop()
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": ""}):
            continue
        for extra in {(requirement.name, one) for one in ("", *requirement.extras)} - found:
            found.add(extra)
            waiting += _needs(*extra)
    return {name for name, _ in found}


def _needs(name: str, extra: str) -> list[Requirement]:
    """Return what a distribution needs for an extra, or without one."""
    needs = [Requirement(one) for one in distribution(name).requires or ()]
    found = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]
    for one in found:
        one.marker = None
    return found


def _files_of(names: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """Return the modules, packages and metadata of distributions, relative and absolute."""
    for name in names:
        installed = distribution(name)
        for file in installed.files or ():
            top = Path(str(installed.locate_file(file.parts[0])))
            if file.parts[0] in ("..", "__pycache__"):
                continue
            # Other distributions may add to a namespace.
            shared = top.is_dir() and not top.suffix and not (top / "__init__.py").exists()
            part = Path(*file.parts[: 2 if shared else 1])
            yield part, Path(str(installed.locate_file(part)))
