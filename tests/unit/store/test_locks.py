"""A lock is free when, and only when, no living process holds it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hasat.store.locks import try_convert, try_lock

_HOLD = "import sys; print('held', flush=True); sys.stdin.read()"


def _heir(descriptor: int) -> subprocess.Popen[bytes]:
    """A process that knows nothing of the lock and holds it only by inheriting the file."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[descriptor],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_lock_is_held_by_whoever_inherits_it_until_it_dies(tmp_path: Path) -> None:
    file = tmp_path / "server.lock"
    descriptor = try_lock(file)
    assert descriptor is not None
    with _heir(descriptor) as heir:
        os.close(descriptor)
        assert try_lock(file) is None
        assert try_lock(file, shared=True) is None
        heir.send_signal(signal.SIGKILL)
        heir.wait()
    again = try_lock(file)
    assert again is not None
    os.close(again)


def test_many_share_and_only_the_last_can_have_it_alone(tmp_path: Path) -> None:
    file = tmp_path / "users.lock"
    first, second = try_lock(file, shared=True), try_lock(file, shared=True)
    assert first is not None
    assert second is not None
    assert not try_convert(first, shared=False)
    os.close(first)
    assert try_convert(second, shared=False)
    assert try_lock(file, shared=True) is None
    os.close(second)


def test_a_lock_file_is_never_followed_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "start.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(tmp_path / "start.lock")
    assert not (tmp_path / "elsewhere").exists()
