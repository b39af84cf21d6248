"""The files in deploy/ agree with the product: commands, settings, ports."""

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from hasat.settings.platform_sections import Jobs, Serve
from hasat.settings.tree import leaves
from support.documented_commands import command_error, commands_in_line

PROJECT = Path(__file__).parents[3]
DEPLOY = PROJECT / "deploy"
PORT = Serve().port
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = {name for leaf in leaves().values() for name in leaf.names}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return read


def test_compose_runs_commands_that_exist_with_settings_that_exist(compose: dict[str, Any]) -> None:
    ours = {k: v for k, v in compose["services"].items() if v["image"].startswith("hasat")}
    assert set(ours) == {"migrate", "serve", "worker"}
    for service in ours.values():
        assert command_error(service["command"]) is None
        assert set(service["environment"]) <= SETTINGS
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert service["read_only"] is True
        used = {volume.partition(":")[0] for volume in service["volumes"]}
        assert used - {"./config"} <= set(compose["volumes"])
        assert set(service["depends_on"]) <= set(compose["services"])


def test_compose_reaches_its_own_database_and_shows_one_port(compose: dict[str, Any]) -> None:
    database = compose["services"]["database"]
    serve = compose["services"]["serve"]
    known = database["environment"]
    url = serve["environment"]["HASAT_DATABASE_URL"]
    assert url.startswith(f"postgresql://{known['POSTGRES_USER']}:")
    assert url.endswith(f"@database:5432/{known['POSTGRES_DB']}")
    assert serve["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert serve["environment"]["HASAT_PORT"] == str(PORT)
    grace = int(compose["services"]["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace > Jobs().drain_seconds


def test_the_object_store_is_added_to_the_services_of_compose(compose: dict[str, Any]) -> None:
    added = yaml.safe_load((DEPLOY / "compose.objects.yaml").read_text("utf-8"))
    objects = added["services"].pop("objects")
    bucket = added["services"].pop("bucket")
    assert {*added["services"]} == {"migrate", "serve", "worker"}
    for name, service in added["services"].items():
        assert name in compose["services"]
        environment = service["environment"]
        assert {*environment} <= SETTINGS
        assert environment["HASAT_ARCHIVES_SERVICE_URL"] == "http://objects:7070"
        known = objects["environment"]
        assert environment["HASAT_ARCHIVES_ACCESS_KEY"] == known["ROOT_ACCESS_KEY_ID"]
        assert environment["HASAT_ARCHIVES_SECRET_KEY"] == known["ROOT_SECRET_ACCESS_KEY"]
        # A bucket is a folder of the store.
        root = objects["command"][-1]
        assert bucket["command"][-1] == f"{root}/{environment['HASAT_ARCHIVES_BUCKET_NAME']}"


def test_commands_in_comments_exist() -> None:
    for file in [DEPLOY / "compose.yaml", DEPLOY / "compose.objects.yaml", *UNITS]:
        lines = [line.lstrip("# ") for line in file.read_text("utf-8").splitlines()]
        for line in lines:
            # `compose run SERVICE` calls the image's program.
            line = re.sub(r"^podman compose .* run --rm migrate", "hasat", line)
            for words in commands_in_line(line):
                assert command_error(words) is None, line


def test_the_container_is_unprivileged_and_checks_its_own_port() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    instructions = re.findall(r"^([A-Z]+) (.*)$", text.replace("\\\n", ""), re.MULTILINE)
    stages = [n for n, (word, _) in enumerate(instructions) if word == "FROM"]
    assert len(stages) == 2
    last = instructions[stages[-1] :]
    final = dict(last)
    assert final["USER"] == "hasat"
    assert final["EXPOSE"] == str(PORT)
    assert f"127.0.0.1:{PORT}/readyz" in final["HEALTHCHECK"]
    assert json.loads(final["ENTRYPOINT"]) == ["hasat"]
    assert command_error(json.loads(final["CMD"])) is None
    assert set(re.findall(r"HASAT_\w+", final["ENV"])) <= SETTINGS
    for word, rest in instructions[: stages[-1]]:
        if word == "COPY":
            assert all((PROJECT / name).exists() for name in rest.split()[:-1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_with_settings_that_exist(unit: Path) -> None:
    text = unit.read_text("utf-8")
    [start] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    [command] = commands_in_line(start)
    assert command_error(command) is None
    assert set(re.findall(r"\b(HASAT_\w+)=", text)) <= SETTINGS
    # Hasat does not start without its settings folder, so systemd creates it.
    [made] = re.findall(r"^ConfigurationDirectory=(.*)$", text, re.MULTILINE)
    assert re.findall(r"HASAT_CONFIG=(\S+)", text) == [f"/etc/{made}"]
    stop = int(re.findall(r"^TimeoutStopSec=(\d+)", text, re.MULTILINE)[0])
    if command != ["serve"]:
        assert stop > Jobs().drain_seconds


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    # The program is not installed here; everything else is checked as it is.
    text = unit.read_text("utf-8").replace("/opt/hasat/bin/hasat", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@test")
    copy.write_text(text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    about_it = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not about_it


def test_prometheus_scrapes_the_default_port() -> None:
    read = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    [job] = read["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{PORT}"]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in read["rule_files"])


def test_every_alert_is_tested() -> None:
    [group] = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text("utf-8"))["groups"]
    tests = (DEPLOY / "prometheus/rules.test.yml").read_text("utf-8")
    untested = {rule["alert"] for rule in group["rules"] if rule["alert"] not in tests}
    assert untested == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
@pytest.mark.parametrize(
    "words",
    [("check", "config", "prometheus.yml"), ("test", "rules", "rules.test.yml")],
    ids=" ".join,
)
def test_alerts_fire_when_their_promise_is_broken_and_not_before(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *words],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pgbouncer_pools_transactions() -> None:
    sample = ConfigParser(interpolation=None)
    sample.read(DEPLOY / "pgbouncer" / "pgbouncer.ini", "utf-8")
    assert sample["pgbouncer"]["pool_mode"] == "transaction"
    assert "hasat" in sample["databases"]
