"""A full disk: an error that names it, no data lost, and recovery once there is space."""

import asyncio
import functools
import http.server
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hasat.console.runtime import open_migrated_store
from hasat.errors import DatabaseError
from hasat.settings import Settings, load_settings
from support.gib_lists import KINDS, Taxpayers, expected_bodies, mirrored_bodies

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system"),
]


@contextmanager
def mounted(place: Path, megabytes: int) -> Iterator[Path]:
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 300) as place:
        yield place


@contextmanager
def filled(disk: Path, *, leave: int = 0) -> Iterator[None]:
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(disk).free - leave))
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def taxpayers(tmp_path: Path) -> Taxpayers:
    seed = int(os.environ.get("HASAT_FUZZ_SEED") or random.randrange(2**32))
    print(f"HASAT_FUZZ_SEED={seed}")
    folder = tmp_path / "lists"
    folder.mkdir()
    return Taxpayers(seed, folder)


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = {"HASAT_HOME": str(home), "HASAT_LOG_FORMAT": "console", **more}
    return {name: one for name, one in os.environ.items() if not name.startswith("HASAT")} | ours


async def hasat(home: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """Run a command and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hasat", *arguments),
        env=environment(home, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 180)
    text = printed.decode()
    print(f"$ hasat {' '.join(arguments)}\n{text}")
    assert "Traceback" not in text
    return process.returncode or 0, text


def lists(taxpayers: Taxpayers) -> list[str]:
    paths = taxpayers.publish()
    return ["--pk", str(paths["PK"]), "--gb", str(paths["GB"])]


async def check_mirror(home: Path, taxpayers: Taxpayers) -> None:
    """Check that the mirror equals the lists."""
    async with open_migrated_store(settings_of(home)) as store:
        for dataset in KINDS:
            assert await mirrored_bodies(store, dataset) == expected_bodies(
                taxpayers.lists, dataset
            )


def settings_of(home: Path) -> Settings:
    return load_settings(environ={"HASAT_HOME": str(home)})


async def test_a_sync_into_a_full_database(disk: Path, taxpayers: Taxpayers) -> None:
    home = disk / "home"
    taxpayers.grow(50)
    code, _ = await hasat(home, "gib", "sync", *lists(taxpayers))
    assert code == 0
    await check_mirror(home, taxpayers)
    before = {box: dict(users) for box, users in taxpayers.lists.items()}
    taxpayers.grow(20_000)
    more = lists(taxpayers)
    with filled(disk, leave=8_000_000):
        code, text = await hasat(home, "gib", "sync", *more)
        assert code != 0
        assert "disk is full" in text
        assert str(disk) in text
        assert "Free some space" in text
    after, taxpayers.lists = taxpayers.lists, before
    await check_mirror(home, taxpayers)
    taxpayers.lists = after
    code, text = await hasat(home, "gib", "sync", *more)
    if code == 4:
        held = re.search(r"Run (\d+): held", text)
        assert held
        code, _ = await hasat(home, "holds", "approve", held[1])
    assert code == 0
    await check_mirror(home, taxpayers)


async def test_a_download_into_a_full_folder(
    disk: Path, tmp_path: Path, taxpayers: Taxpayers
) -> None:
    home = disk / "home"
    taxpayers.grow(3_000)
    served = tmp_path / "served"
    served.mkdir()
    for box, path in taxpayers.publish().items():
        with zipfile.ZipFile(served / f"{box}.zip", "w") as archive:
            archive.write(path, "list.xml")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        options = ["--pk", f"{address}/PK.zip", "--gb", f"{address}/GB.zip"]
        async with open_migrated_store(settings_of(home)):
            with filled(disk, leave=200_000):
                code, text = await hasat(home, "gib", "sync", *options)
        assert code != 0
        assert "full" in text
        assert str(disk) in text
        code, _ = await hasat(home, "gib", "sync", *options)
        assert code == 0
        await check_mirror(home, taxpayers)
    finally:
        server.shutdown()
        server.server_close()


async def test_a_server_that_cannot_write_its_log_comes_back(
    disk: Path, taxpayers: Taxpayers
) -> None:
    home = disk / "home"
    taxpayers.grow(50)
    code, _ = await hasat(home, "gib", "sync", *lists(taxpayers))
    assert code == 0
    async with open_migrated_store(settings_of(home)) as store:

        async def write() -> None:
            async with store.connection() as conn:
                await conn.execute("CREATE TABLE IF NOT EXISTS public.junk (id text)")
                await conn.execute(
                    "INSERT INTO public.junk SELECT md5(random()::text) || repeat('x', 500)"
                    " FROM generate_series(1, 200000)"
                )

        with filled(disk, leave=20_000_000):
            with pytest.raises(DatabaseError) as caught:
                await write()
            print(caught.value)
            assert "full" in str(caught.value)
            assert str(disk) in str(caught.value)
        async with asyncio.timeout(90):
            while True:
                try:
                    async with store.connection() as conn:
                        await conn.execute("CREATE TABLE public.recovered (id text)")
                    break
                except DatabaseError as error:
                    print(error)
                    await asyncio.sleep(1)
    await check_mirror(home, taxpayers)


async def test_archives_backups_and_exports_on_a_full_disk(
    disk: Path, tmp_path: Path, taxpayers: Taxpayers
) -> None:
    home = tmp_path / "home"
    archives = disk / "archives"
    elsewhere: dict[str, Any] = {"HASAT_ARCHIVES_BASE_PATH": str(archives)}
    taxpayers.grow(2_000)
    code, _ = await hasat(home, "gib", "sync", *lists(taxpayers), **elsewhere)
    assert code == 0
    commands = [
        ("archive", "write", "einvoice", "--force"),
        ("db", "backup", str(disk / "backup")),
        *(("tkgm", "export", str(disk / f"p.{form}")) for form in ("gpkg", "csv", "geojson")),
    ]
    with filled(disk):
        for command in commands:
            code, text = await hasat(home, *command, **elsewhere)
            assert code != 0
            assert str(disk) in text
            assert "full" in text or "No space left" in text
            assert "Free some space" in text
    for command in commands:
        code, _ = await hasat(home, *command, **elsewhere)
        assert code == 0
    assert (disk / "backup").stat().st_size > 0
    await check_mirror(home, taxpayers)


async def test_the_doctor_warns_before(disk: Path) -> None:
    with filled(disk, leave=100_000_000):
        _, text = await hasat(disk / "home", "doctor", "--json")
    disks = [one for one in json.loads(text[text.index("[\n") :]) if one["check"] == "disk"]
    [ours] = [one for one in disks if str(disk) in one["message"]]
    assert ours["grade"] == "warning"
    assert "Free some space" in ours["remedy"]
