"""Runs commands of Hasat in forks of a process that has imported it.

A command spends most of its processor time on imports. Each process of the tests starts one server
of forks, which imports the command line once; every command is then a fork of it, with arguments,
environment, folder and output of its own. Tests of what a command imports start a program.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn


def run_hasat(
    *words: str, environ: Mapping[str, str], cwd: Path | None = None, timeout: float = 90
) -> "subprocess.CompletedProcess[str]":
    """Run a command, and return its exit code and output, as `subprocess.run` does."""
    # Another path may lead to other sources; other systems may not fork safely.
    if sys.platform != "linux" or _path(environ) != _path(os.environ):
        return subprocess.run(
            [sys.executable, "-m", "hasat", *words],
            env=environ,
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    request = {
        "words": words,
        "environ": dict(environ),
        "cwd": str(cwd or Path.cwd()),
        "umask": _umask(),
    }
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        socket.socket(socket.AF_UNIX) as conversation,
    ):
        conversation.settimeout(timeout)
        conversation.connect(_server())
        socket.send_fds(conversation, [b"-"], [out.fileno(), err.fileno()])
        conversation.sendall(json.dumps(request).encode() + b"\n")
        with conversation.makefile("r") as answers:
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.killpg(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["hasat", *words], timeout) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["hasat", *words], code, out.read(), err.read())


def _umask() -> int:
    """Return the mask of this process, which a program that it starts would inherit."""
    # Reading it with `os.umask` would change it for a moment, for all threads.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("\nUmask:")[2].split()[0], 8)


def _path(environ: Mapping[str, str]) -> str:
    return environ.get("PYTHONPATH", "")


@functools.cache
def _server() -> str:
    """Start the server of forks, which ends with this process; return its address."""
    name = f"hasat-forks-{os.getpid()}-{time.monotonic_ns()}"
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, name, str(theirs.fileno())]
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    assert ours.recv(1) == b"r", "the server of forks did not start"
    # It sees the end of this process at the other end, which is not closed before.
    _kept.extend([ours, server])
    return _address_of(name)


_kept: list[object] = []


def _address_of(name: str) -> str:
    """Return an address without a file."""
    return f"\0{name}"


def _serve(name: str, owner: socket.socket) -> dict[str, Any]:
    """Answer requests; return, in a fork, what its command is to be."""
    _import_the_command_line()
    # Nobody waits for the processes that answer.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(_address_of(name))
    listening.listen(64)
    owner.send(b"r")
    owner.setblocking(False)
    listening.settimeout(1)
    while True:
        with contextlib.suppress(BlockingIOError):
            if not owner.recv(1):
                os._exit(0)
        try:
            conversation, _ = listening.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listening.close()
            owner.close()
            return _answer(conversation)
        conversation.close()


def _answer(conversation: socket.socket) -> dict[str, Any]:
    """Fork the command, wait for it and send its exit code; return in the fork alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    conversation.setblocking(True)
    _, output, *_ = socket.recv_fds(conversation, 1, 2)
    with conversation.makefile("r") as requests:
        request: dict[str, Any] = json.loads(requests.readline())
    pid = os.fork()
    if pid:
        conversation.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            conversation.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    conversation.close()
    os.setsid()
    for number, descriptor in enumerate(output, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return request


def _import_the_command_line() -> None:
    """Import what commands need, as far as it starts no threads."""
    from hasat.cli import COMMANDS
    from hasat.source.installed import all_sources

    for place in COMMANDS.values():
        import_module(f"hasat.cli.{place.partition(':')[0]}")
    for source in all_sources():
        if source.commands is not None:
            source.commands()
    import_module("hasat.console.runtime")
    assert len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - the paths are not needed


def _become(request: dict[str, Any]) -> NoReturn:
    """Do what `python -m hasat` does after its imports."""
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    main = import_module("hasat.__main__")
    # Processes that the command starts by `multiprocessing` import it again.
    sys.modules["__main__"] = main
    sys.argv = [str(main.__file__), *request["words"]]
    code: object = 0
    try:
        main.main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    # The end of Python, but for freeing the memory, which takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    # As in a program, the first entry is not the folder of this file.
    sys.path.pop(0)
    _become(_serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
