"""Only the user who runs Hasat can read what it stores."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal

from hasat.sim import Simulation, simulate
from hasat.sources.gib.simulator.server import GIB
from support.processes import Installation


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set a umask with which new files are readable and writable by all users."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def used(installation: Installation, background: BlockingPortal) -> Installation:
    """A home with lists, archives, a hold, a backup and an export."""
    upstream = Simulation(GIB, options={"users": 60})
    with background.wrap_async_context_manager(simulate(upstream)) as address:
        lists = [f"{address}/EFaturaMerkez/newUser{kind}Listxml.zip" for kind in ("Pk", "Gb")]
        sync = ["gib", "sync", "--pk", lists[0], "--gb", lists[1]]
        assert installation.call(*sync).returncode == 0
        upstream.faults.switch_on("half-list")
        assert installation.call(*sync).returncode == 4
    assert installation.call("db", "backup", str(installation.home / "backup.dump")).returncode == 0
    assert (
        installation.call("tkgm", "export", str(installation.home / "parcels.csv")).returncode == 0
    )
    return installation


def _readable_by_others(home: Path) -> dict[str, str]:
    """Every folder that is not 0700 and every file that is not 0600."""
    found = {}
    for path in (home, *home.rglob("*")):
        mode = path.lstat().st_mode
        expected = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o600}.get(stat.S_IFMT(mode))
        if expected is not None and stat.S_IMODE(mode) != expected:
            found[str(path)] = oct(mode)
    return found


def test_everything_in_a_home_is_private(used: Installation, tmp_path: Path) -> None:
    for kind in ("*.parquet", "*.zip", "start.log", "PG_VERSION", "backup.dump", "parcels.csv"):
        assert list(used.home.rglob(kind)), kind
    assert _readable_by_others(used.home) == {}
    # Files that the caller names elsewhere follow the caller's umask.
    assert used.call("tkgm", "export", str(tmp_path / "parcels.csv")).returncode == 0
    assert stat.S_IMODE((tmp_path / "parcels.csv").stat().st_mode) == 0o666


def test_a_home_of_an_earlier_version_becomes_private_at_the_next_start(used: Installation) -> None:
    belongs_to_server = [used.home / "postgres" / name for name in ("data", "log", "run")]
    for path in (used.home, *used.home.rglob("*")):
        if not any(path.is_relative_to(folder) for folder in belongs_to_server):
            path.chmod(0o755 if path.is_dir() else 0o644)
    elsewhere = used.home.parent / "elsewhere.txt"
    elsewhere.touch()
    (used.home / "link").symlink_to(elsewhere)
    assert len(_readable_by_others(used.home)) > 10
    assert used.call("jobs", "list").returncode == 0
    assert _readable_by_others(used.home) == {}
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o666


def test_the_permissions_of_a_shared_folder_stay(installation: Installation) -> None:
    installation.home.mkdir()
    installation.home.chmod(0o1777)
    theirs = installation.home / "theirs.txt"
    theirs.touch()
    installation.call("db", "migrate")
    done = installation.call("doctor")
    assert "is shared with other users or programs" in done.stdout
    assert stat.S_IMODE(installation.home.stat().st_mode) == 0o1777
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o666
    assert _readable_by_others(installation.home / "postgres") == {}
