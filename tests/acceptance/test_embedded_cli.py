"""The commands of `hasat db`."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from hasat.testing.database import ThrowAwayDatabase


@dataclass(frozen=True)
class Shell:
    """A shell in which HASAT_HOME, and perhaps HASAT_DATABASE_URL, is set."""

    environment: dict[str, str]

    def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hasat", "db", *words],
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == expect, done.stderr
        assert "Traceback" not in done.stderr
        return done


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell({"HASAT_HOME": str(tmp_path / "Ev ışığı")})


def test_the_commands_on_the_embedded_database(shell: Shell, tmp_path: Path) -> None:
    url = shell.run("url").stdout.strip()
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
    assert json.loads(shell.run("url", "--json").stdout) == {"url": url, "embedded": True}
    # Other commands come and go; the server stays up.
    assert "platform/0001_schemas.sql" in shell.run("migrate").stdout
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1 FROM jobs.run")
    assert json.loads(shell.run("stop", "--json").stdout) == {"stopped": True}
    assert json.loads(shell.run("stop", "--json").stdout) == {"stopped": False}
    assert json.loads(shell.run("migrate", "--json").stdout) == {"applied": []}
    # A stopped server is not restarted under the old URL.
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    shell.run("psql", "-c", "CREATE TABLE core.kept AS SELECT 'çay' AS name")
    backup = tmp_path / "monday.dump"
    result = json.loads(shell.run("backup", str(backup), "--json").stdout)
    assert result == {"file": str(backup), "bytes": backup.stat().st_size}
    shell.run("psql", "-c", "DELETE FROM core.kept")
    assert "--yes" in shell.run("restore", str(backup), expect=2).stderr
    shell.run("restore", str(backup), "--yes")
    assert shell.run("psql", "-Atc", "SELECT name FROM core.kept").stdout == "çay\n"
    assert shell.run("psql", "-c", "SELECT nonsense", expect=1).stderr.startswith("ERROR")


def test_a_configured_server(shell: Shell, database: ThrowAwayDatabase) -> None:
    given = Shell(shell.environment | {"HASAT_DATABASE_URL": database.url})
    assert json.loads(given.run("url", "--json").stdout) == {"url": database.url, "embedded": False}
    assert "SELECT" not in given.run("psql", "-Atc", "SELECT current_database()").stdout
    assert "does not stop a server" in given.run("stop", expect=2).stderr
    assert not Path(shell.environment["HASAT_HOME"], "postgres").exists()


def test_an_unreachable_server_is_reported_without_its_password(shell: Shell) -> None:
    away = Shell(shell.environment | {"HASAT_DATABASE_URL": "postgresql://u:gizli@127.0.0.1:1/d"})
    for words in (["url"], ["psql"], ["migrate"], ["backup", "x"]):
        done = away.run(*words, expect=1)
        assert done.stdout == ""
        assert "Connection refused" in done.stderr
        assert "gizli" not in done.stderr
