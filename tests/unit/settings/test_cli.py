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


ORIGINAL_JOBS = """\
fixtures_fetch_mode: per_tracked_leagues
jobs:
- job_id: daily_standings
  type: incremental_daily
  enabled: true
  priority: HIGH
  endpoint: /standings
  params: {league: null, season: null}
  interval: {type: cron, cron: "0-59/5 * * * *"}
  mode: {max_leagues_per_run: 30}
  target_layer: raw+core
  dependencies: [bootstrap_leagues]
  coverage_target: {endpoint: /standings, min_records: 1}
- job_id: stale_live_refresh
  enabled: true
  params: {stale_threshold_minutes: 30, scope_source: daily}
  interval: {type: cron, cron: "*/10 * * * *"}
- job_id: live_fixtures_all
  type: live_loop
  interval: {type: interval, seconds: 15}
tracked_leagues:
- {id: 39, name: Premier League, season: 2025}
"""


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder with the job files of the original football collector."""
    folder = tmp_path / "config" / "jobs"
    folder.mkdir(parents=True)
    (folder / "daily.yaml").write_text(ORIGINAL_JOBS)
    return folder


def test_check_knows_jobs_and_their_parameters(
    run: Run, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKFILL_FIXTURES_WINDOW_DAYS", "14")
    result = run("check", "--json")
    assert result.exit_code == 0
    checked = json.loads(result.stdout)
    live, windows, scope = checked["remarks"]
    assert "live_fixtures_all has no effect" in live
    assert "live_refresh" in live
    assert windows.startswith("football.backfill.fixtures_window_days has no effect")
    assert scope.startswith("jobs.schedule.stale_live_refresh.params.scope_source has no effect")
    assert checked["problems"] == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("daily_standings", "daily_standing", "'daily_standing', which does not exist"),
        ("stale_threshold_minutes: 30", "stale_threshold_minutes: often", "stale_threshold"),
        ("0-59/5 * * * *", "0-99/5 * * * *", "bad minute"),
        (
            "- {id: 39, name: Premier League, season: 2025}",
            "- {id: 39, season: 2025}\n- {id: 39, season: 2025}",
            "names a league twice: 39 in season 2025",
        ),
    ],
)
def test_check_reports_wrong_jobs_and_leagues(
    run: Run, original: Path, before: str, after: str, problem: str
) -> None:
    (original / "daily.yaml").write_text(ORIGINAL_JOBS.replace(before, after))
    result = run("check", "--json")
    assert result.exit_code == 2
    [found] = json.loads(result.stdout)["problems"]
    assert problem in found


@pytest.mark.parametrize("address", ["v3.football.api-sports.io", "ftp://example.org", "https://"])
def test_check_reports_a_wrong_address(
    run: Run, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("API_FOOTBALL_BASE_URL", address)
    result = run("check", "--json")
    assert result.exit_code == 2
    assert "API_FOOTBALL_BASE_URL" in json.loads(result.stdout)["problems"][0]
