"""A source brings its commands, and cannot take or break those of the platform."""

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hasat.cli import COMMANDS, app
from hasat.cli.commands.jobs import with_defaults
from hasat.errors import HasatError, SettingsError
from hasat.settings import load_settings
from hasat.sim import Simulation, Simulator
from hasat.source import Source
from hasat.source.installed import RESERVED_NAMES, all_sources, installed_sources
from support.installed import installed


def _commands() -> typer.Typer:
    commands = typer.Typer(help="Bells of the town.")

    @commands.callback()
    def group() -> None:
        """Keep it a group."""

    @commands.command()
    def ring(times: int = 1) -> None:
        """Ring the bells."""
        print("dong " * times)

    return commands


def _broken() -> typer.Typer:
    raise ImportError("no module named bronze")


def test_a_source_brings_its_commands() -> None:
    with installed(bells=Source("bells", "Bells", commands=_commands)):
        ring = CliRunner().invoke(app, ["bells", "ring", "--times", "2"])
        assert (ring.exit_code, ring.output.split()) == (0, ["dong", "dong"])
        assert "Bells of the town." in CliRunner().invoke(app, ["--help"]).output


def test_commands_that_cannot_be_loaded_are_reported_when_called() -> None:
    with installed(bells=Source("bells", "Bells", commands=_broken), cracked="no source"):
        for arguments in (["bells", "ring", "--times", "2"], ["cracked"]):
            result = CliRunner().invoke(app, arguments)
            assert isinstance(result.exception, HasatError)
            assert "cannot be loaded" in result.exception.message
        assert CliRunner().invoke(app, ["--help"]).exit_code == 0


def test_a_source_without_commands_is_no_command() -> None:
    with installed(bells=Source("bells", "Bells")):
        assert CliRunner().invoke(app, ["bells"]).exit_code == 2


def test_the_name_of_a_platform_command_is_refused() -> None:
    with installed(doctor=Source("doctor", "Bells")), pytest.raises(SettingsError, match="doctor"):
        installed_sources()


def test_every_platform_command_is_reserved() -> None:
    assert set(COMMANDS) <= RESERVED_NAMES


def test_a_platform_command_loads_no_source() -> None:
    code = """
import sys
from hasat.cli import app
for arguments in (["--version"], ["quota", "--help"]):
    try:
        app(arguments)
    except SystemExit:
        pass
print([name for name in sys.modules if name.startswith("hasat.sources")])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_source_brings_its_simulator_with_a_command() -> None:
    def build(simulation: Simulation) -> Any:
        raise AssertionError("it is not started here")

    def strike(times: int = 1) -> None:
        """Strike the simulated bells."""
        print("ding " * times)

    simulator = Simulator("bells", "bells of bronze", build, command=lambda: strike)
    with installed(bells=Source("bells", "Bells", simulator=lambda: simulator)):
        assert "bells of bronze" in CliRunner().invoke(app, ["sim", "list"]).output
        struck = CliRunner().invoke(app, ["sim", "bells", "--times", "2"])
        assert (struck.exit_code, struck.output.split()) == (0, ["ding", "ding"])


def test_a_source_gives_values_for_parameters_that_a_manual_run_omits() -> None:
    settings = load_settings(environ={"ONLY_LEAGUE_ID": "39"})
    [football] = [one for one in all_sources() if one.name == "football"]
    jobs = {job.name: job for job in football.jobs}
    assert with_defaults(settings, jobs["daily_standings"], {})["only_league_id"] == 39
    assert with_defaults(settings, jobs["daily_standings"], {"only_league_id": 40}) == {
        "only_league_id": 40
    }
