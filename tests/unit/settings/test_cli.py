"""`hasat config`: what it prints, where, and with which exit code."""

import json
from pathlib import Path
from typing import Protocol

import pytest
import typer
from typer.testing import CliRunner, Result

from hasat.cli.commands import config
from hasat.errors import SettingsError, UsageError
from hasat.settings.reference import reference


class Run(Protocol):
    def __call__(self, *words: str, **flags: str) -> Result: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `hasat config ...` below a root command that holds the global flags."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HASAT_HOME", str(tmp_path))
    root = typer.Typer()
    root.add_typer(config.app, name="config")
    flags: dict[str, str] = {}

    @root.callback()
    def hold(ctx: typer.Context) -> None:
        ctx.obj = flags

    def call(*words: str, **given: str) -> Result:
        flags.clear()
        flags.update(given)
        return CliRunner().invoke(root, ["config", *words])

    return call


def test_show_prints_every_setting_and_hides_secrets(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_FOOTBALL_KEY", "S3cr3t")
    monkeypatch.setenv(
        "HASAT_AUTHENTICATION_CLIENTS", '[{"access_key": "a", "secret_key": "S3cr3t"}]'
    )
    for words in ((), ("--origin",), ("--json",), ("--json", "--origin")):
        result = run("show", *words)
        assert result.exit_code == 0
        assert "S3cr3t" not in result.output
        assert "********" in result.output


def test_show_says_where_values_came_from(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GibEndpoints__BatchSize", "5")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "hasat.yaml").write_text("log:\n  level: debug\n")
    shown = json.loads(run("show", "--json", "--origin", **{"serve.port": "9000"}).stdout)
    assert shown["gib.batch_size"] == {
        "value": 5,
        "origin": "environment",
        "where": "GibEndpoints__BatchSize",
    }
    assert shown["log.level"]["where"] == "config/hasat.yaml:2"
    assert shown["serve.port"] == {"value": 9000, "origin": "flag", "where": "serve.port"}
    assert shown["serve.host"] == {"value": "127.0.0.1", "origin": "default", "where": ""}
    text = run("show", "--origin", "log.level", "gib.batch_size").stdout
    assert text.splitlines() == [
        "log.level       DEBUG  file config/hasat.yaml:2",
        "gib.batch_size  5      environment GibEndpoints__BatchSize",
    ]


def test_show_takes_settings_and_sections(run: Run) -> None:
    shown = json.loads(run("show", "--json", "serve", "gib.download_timeout").stdout)
    assert shown == {
        "serve.host": "127.0.0.1",
        "serve.port": 8787,
        "serve.workers": 1,
        "serve.allowed_hosts": [],
        "serve.requests_per_minute": 600,
        "serve.max_connections": None,
        "serve.header_timeout": "15s",
        "serve.body_timeout": "1m",
        "serve.send_timeout": "1m",
        "serve.base_map": None,
        "serve.base_map_credit": "",
        "gib.download_timeout": "10m",
    }
    assert run("show", "jobs.schedule").stdout == "No job has changed settings.\n"
    result = run("show", "serve.prot")
    assert isinstance(result.exception, UsageError)
    assert "did you mean 'serve.port'?" in str(result.exception)


def test_check_names_files_and_remarks(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://x")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "gib.yaml").write_text("batch_size: 5")
    result = run("check")
    assert result.stdout == "The settings are valid. Read config/gib.yaml.\n"
    assert "REDIS_URL has no effect" in result.stderr
    assert json.loads(run("check", "--json").stdout)["files"] == ["config/gib.yaml"]


def test_check_fails_when_something_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASAT_SERVE_PROT", "1")
    assert isinstance(run("check").exception, SettingsError)
    result = run("check", "--json")
    assert result.exit_code == 2
    assert len(json.loads(result.stdout)["problems"]) == 1


def test_reference_prints_the_page(run: Run) -> None:
    assert run("reference").stdout == reference()
