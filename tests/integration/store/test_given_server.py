"""A server given by its URL: every way in which it can refuse is one sentence."""

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hasat.errors import DatabaseAwayError, DatabaseError
from hasat.settings import Settings, load_settings
from hasat.store import open_store
from hasat.store.embedded.account import server_account
from hasat.store.embedded.binaries import server_binaries

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

PASSWORD = "gizli-söz"


def _settings(url: str, home: Path) -> Settings:
    return load_settings(environ={"HASAT_HOME": str(home), "HASAT_DATABASE_URL": url})


async def _refusal(url: str, home: Path, *, may_come: bool = False) -> str:
    with pytest.raises(DatabaseError) as caught:
        async with open_store(_settings(url, home)):
            pass
    assert caught.value.remedy
    assert isinstance(caught.value, DatabaseAwayError) is may_come
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return caught.value.message


@pytest.fixture(scope="module")
def port_with_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server on loopback that asks for a password."""
    account = server_account(Path("/nonexistent"))
    binaries = server_binaries(None, None, account)
    folder = Path("/tmp") / f"hasat-test-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    os.chown(folder, account.uid, account.gid)
    words = folder / "password"
    words.write_text(PASSWORD)
    words.chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    subprocess.run(
        [
            *(binaries.program("initdb"), "--no-sync", "-D", str(folder / "data"), "-U", "elif"),
            *("--auth=scram-sha-256", f"--pwfile={words}", "--encoding=UTF8", "--locale=C"),
        ],
        check=True,
        capture_output=True,
        cwd="/",
        **account.switch(),
    )
    server = subprocess.Popen(
        [
            *(binaries.program("postgres"), "-D", str(folder / "data"), "-F", "-p", str(port)),
            *("-h", "127.0.0.1", "-k", str(folder)),
        ],
        stderr=subprocess.DEVNULL,
        cwd="/",
        **account.switch(),
    )
    try:
        while server.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(
                    host="127.0.0.1", port=port, user="elif", password=PASSWORD, dbname="postgres"
                ).close()
                break
        yield port
    finally:
        server.terminate()
        server.wait()
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def old_server() -> Iterator[int]:
    """A server that reports itself as PostgreSQL 9.6 at login."""
    listener = socket.create_server(("127.0.0.1", 0))

    def say(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(1024)
                    client.sendall(
                        say(b"R", struct.pack("!i", 0))
                        + say(b"S", b"server_version\x009.6.24\x00")
                        + say(b"S", b"client_encoding\x00UTF8\x00")
                        + say(b"Z", b"I")
                    )
                    client.recv(1024)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


async def test_the_right_password_is_enough(port_with_password: int, tmp_path: Path) -> None:
    url = f"postgresql://elif:gizli-s%C3%B6z@127.0.0.1:{port_with_password}/postgres"
    async with open_store(_settings(url, tmp_path)) as store:
        assert not store.embedded
        assert store.label == f"postgres on 127.0.0.1:{port_with_password} as elif"
        await store.now()
    assert not (tmp_path / "postgres").exists()


async def test_a_wrong_password(port_with_password: int, tmp_path: Path) -> None:
    said = await _refusal(f"postgresql://elif:wrong@127.0.0.1:{port_with_password}/x", tmp_path)
    assert "refused the login" in said
    assert "wrong" not in said


async def test_no_such_database(port_with_password: int, tmp_path: Path) -> None:
    url = f"postgresql://elif:gizli-s%C3%B6z@127.0.0.1:{port_with_password}/nowhere"
    assert "database nowhere does not exist" in await _refusal(url, tmp_path)


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"postgresql://elif:gizli-s%C3%B6z@127.0.0.1:{bound.getsockname()[1]}/x"
        assert "cannot be reached" in await _refusal(url, tmp_path, may_come=True)


async def test_no_such_host(tmp_path: Path) -> None:
    said = await _refusal(
        "postgresql://elif:gizli-s%C3%B6z@nowhere.invalid/x", tmp_path, may_come=True
    )
    assert "cannot be reached" in said


async def test_a_server_that_is_too_old(old_server: int, tmp_path: Path) -> None:
    said = await _refusal(f"postgresql://elif@127.0.0.1:{old_server}/x?sslmode=disable", tmp_path)
    assert "PostgreSQL 9; Hasat needs 15 or later" in said
