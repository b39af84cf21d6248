"""Homes in unusual folders, and errors for folders that cannot be used."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hasat.errors import DatabaseError
from hasat.store.embedded.binaries import installed_folders
from hasat.store.embedded.server import EmbeddedServer

pytestmark = pytest.mark.anyio

_needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 150 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _fill(disk: Path, *, leave: int) -> Path:
    free = shutil.disk_usage(disk).free
    filler = disk / "filler"
    filler.write_bytes(b"\0" * max(0, free - leave))
    return filler


async def _query(url: str, query: str) -> object:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(query)).fetchone()
        assert row is not None
        return row[0]


async def _start_error(home: Path) -> DatabaseError:
    with pytest.raises(DatabaseError) as caught:
        async with EmbeddedServer(home).lease():
            pass
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "name",
    ["Türkçe çalışma klasörü/ışık", "virgül, 'tek' ve \"çift\" $HOME `x` \\", "uzun" * 40],
    ids=["turkish", "punctuation", "long"],
)
async def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    async with EmbeddedServer(home).lease() as url:
        assert await _query(url, "SELECT 'ığüşöç'::text") == "ığüşöç"
    async with EmbeddedServer(home).lease() as url:
        assert await _query(url, "SELECT current_database()::text") == "hasat"


async def test_the_server_is_tuned_and_private(tmp_path: Path) -> None:
    expected = {
        "listen_addresses": "",
        "jit": "off",
        "fsync": "on",
        "synchronous_commit": "on",
        "wal_level": "minimal",
        "max_wal_size": "4GB",
        "max_connections": "200",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }
    async with EmbeddedServer(tmp_path).lease() as url:
        for name, value in expected.items():
            assert await _query(url, f"SELECT current_setting('{name}')") == value, name
        folder = str(await _query(url, "SELECT current_setting('unix_socket_directories')"))
        assert os.stat(folder.strip('"')).st_mode & 0o777 == 0o700  # noqa: PTH116
        await _change(url, "ALTER SYSTEM SET work_mem = '33MB'")
    async with EmbeddedServer(tmp_path).lease() as url:
        assert await _query(url, "SELECT current_setting('work_mem')") == "33MB"


async def _change(url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)


async def test_turkish_letters_fold_and_compare_as_unicode(home_with_database: Path) -> None:
    async with EmbeddedServer(home_with_database).lease() as url:
        if await _query(url, "SELECT current_setting('server_version_num')::int >= 170000"):
            assert await _query(url, "SELECT upper('ğüşöç')") == "ĞÜŞÖÇ"


async def test_an_installed_postgresql_serves_as_well(tmp_path: Path) -> None:
    installed = installed_folders()
    if not installed:
        pytest.skip("no PostgreSQL is installed besides the wheel")
    major = installed[0].parent.name
    async with EmbeddedServer(tmp_path, binaries=installed[0]).lease() as url:
        assert str(await _query(url, "SELECT version()")).startswith(f"PostgreSQL {major}")
    # The version of the data decides, although the wheel would come first.
    async with EmbeddedServer(tmp_path).lease() as url:
        assert str(await _query(url, "SELECT version()")).startswith(f"PostgreSQL {major}")


async def test_data_of_a_version_that_is_not_here(tmp_path: Path) -> None:
    _pretend_data(tmp_path, "PG_VERSION", "99\n")
    error = await _start_error(tmp_path)
    assert "written by PostgreSQL 99" in error.message


async def test_a_folder_that_is_no_data_folder(tmp_path: Path) -> None:
    _pretend_data(tmp_path, "letter.txt", "hello")
    error = await _start_error(tmp_path)
    assert "not a PostgreSQL data folder" in error.message
    assert _listing(tmp_path / "postgres/data") == ["letter.txt"]


def _pretend_data(home: Path, name: str, text: str) -> None:
    data = home / "postgres/data"
    data.mkdir(parents=True)
    (data / name).write_text(text)
    if os.geteuid() == 0:
        shutil.chown(data, "nobody")


def _listing(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_a_home_inside_a_file(tmp_path: Path) -> None:
    _write(tmp_path / "file")
    error = await _start_error(tmp_path / "file" / "home")
    assert "Not a directory" in error.message
    assert "HASAT_HOME" in str(error)


def _write(file: Path, text: str = "") -> None:
    file.write_text(text)


async def test_a_server_that_does_not_start_is_quoted(home_with_database: Path) -> None:
    _write(home_with_database / "postgres/data/postgresql.auto.conf", "work_mem = 'a lot'\n")
    error = await _start_error(home_with_database)
    assert error.message.startswith("PostgreSQL could not start: ")
    assert "postgresql.auto.conf" in error.message


@_needs_root
async def test_a_disk_too_small_for_a_database(small_disk: Path) -> None:
    filler = _fill(small_disk, leave=20_000_000)
    error = await _start_error(small_disk / "home")
    assert "No space left on device" in error.message or "is full" in error.message
    assert "Free some space" in str(error)
    filler.unlink()
    async with EmbeddedServer(small_disk / "home").lease() as url:
        assert await _query(url, "SELECT 1") == 1


@_needs_root
async def test_a_disk_that_is_full_at_the_next_start(small_disk: Path) -> None:
    async with EmbeddedServer(small_disk / "home").lease() as url:
        await _change(url, "CREATE TABLE stored AS SELECT 7 AS id")
    filler = _fill(small_disk, leave=0)
    error = await _start_error(small_disk / "home")
    assert "full" in error.message or "No space left" in error.message
    assert "Free some space" in str(error)
    filler.unlink()
    async with EmbeddedServer(small_disk / "home").lease() as url:
        assert await _query(url, "SELECT id FROM stored") == 7


@_needs_root
async def test_a_disk_that_cannot_be_written(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)  # noqa: ASYNC221
    error = await _start_error(small_disk / "home")
    assert "Read-only file system" in error.message
