"""A real PgBouncer in transaction mode before the tests' server, on a free port."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from support.processes import eventually, free_port

CHOICE = "HASAT_TEST_PGBOUNCER"


def _binary() -> str:
    """The program; without one the test is skipped, and says what to do."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    found = shutil.which(os.environ.get(CHOICE) or "pgbouncer", path=path)
    if found is None:
        pytest.skip(f"no PgBouncer: apt-get install pgbouncer, or set {CHOICE} to its path")
    return found


@contextmanager
def pgbouncer(folder: Path, url: str, host: str = "127.0.0.1", *more_hosts: str) -> Iterator[str]:
    """The address of a database through PgBouncer on these hosts, the first in the address."""
    program = _binary()
    server = conninfo_to_dict(url)
    port = free_port()
    config = folder / "pgbouncer.ini"
    config.write_text(
        "[databases]\n"
        f"{server['dbname']} = host={server.get('host', '127.0.0.1')}"
        f" port={server.get('port', 5432)} user={server['user']}"
        f"{' password=' + str(server['password']) if 'password' in server else ''}\n"
        "[pgbouncer]\n"
        f"listen_addr = {','.join((host, *more_hosts))}\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 8\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    # Its user may not look into our folder, but may read what it is handed.
    config.chmod(0o644)
    with config.open() as handed:
        process = subprocess.Popen(
            [program, "--quiet", f"/dev/fd/{handed.fileno()}"],
            pass_fds=[handed.fileno()],
            stdin=subprocess.DEVNULL,
            **_as_the_server(str(server.get("host", ""))),  # type: ignore[call-overload]
        )
    through = f"postgresql://{server['user']}@{host}:{port}/{server['dbname']}"
    try:
        eventually(lambda: _answers(through), "PgBouncer answers")
        yield through
    finally:
        process.terminate()
        process.wait(30)


def _as_the_server(socket_folder: str) -> dict[str, object]:
    """It refuses to be root; as the server's own user it may open the server's socket."""
    if os.geteuid() != 0:
        return {}
    owner = Path(socket_folder).stat().st_uid if socket_folder.startswith("/") else 0
    account = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=5, prepare_threshold=None) as conn:
            return conn.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False
