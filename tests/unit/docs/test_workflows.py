"""The workflows run commands, tests and scripts that exist, on the versions that are supported."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[3]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
PACKAGE = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
SCRIPTS = sorted(one for one in (PROJECT / "scripts").iterdir() if not one.suffix)


def load(file: Path) -> dict[str, Any]:
    # YAML reads the key `on` as true.
    read: dict[str, Any] = yaml.safe_load(file.read_text("utf-8").replace("\non:", '\n"on":', 1))
    return read


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


TEST = load(PROJECT / ".github/workflows/test.yml")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_names_files_and_jobs_that_exist(file: Path) -> None:
    workflow = load(file)
    for job in workflow["jobs"].values():
        assert {job["needs"]} <= {*workflow["jobs"]} if "needs" in job else True
        if uses := job.get("uses"):
            assert (PROJECT / uses).is_file()
    for step in steps(workflow):
        # Actions are pinned to a version.
        assert "uses" not in step or "@" in step["uses"]
        for name in re.findall(
            r"(?<![\w/.-])((?:scripts|tests|deploy)/[\w./-]+)", step.get("run", "")
        ):
            assert (PROJECT / name).exists(), name
        for target in re.findall(r"\bmake ([a-z]+)", step.get("run", "")):
            assert re.search(
                rf"^{target}:", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE
            )


def test_every_supported_python_and_postgresql_is_tested() -> None:
    declared = {
        one.rpartition(" ")[2]
        for one in PACKAGE["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    }
    jobs = TEST["jobs"]
    assert {*jobs["quick"]["strategy"]["matrix"]["python"]} == declared
    assert {*jobs["everything"]["strategy"]["matrix"]["python"]} <= declared
    assert PACKAGE["requires-python"] == f">={min(declared, key=lambda one: int(one[2:]))}"
    assert jobs["quick"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    versions = jobs["postgresql"]["strategy"]["matrix"]["postgresql"]
    assert versions == [str(one) for one in range(15, 19)]


def test_a_release_is_published_after_all_tests() -> None:
    release = load(PROJECT / ".github/workflows/release.yml")
    assert release["on"]["push"]["tags"] == ["v[0-9]*"]
    publishing = {name for name in release["jobs"] if name != "test"}
    assert {release["jobs"][name]["needs"] for name in publishing} == {"test"}
    uploaded = [one["with"] for one in steps(TEST) if "upload-artifact" in one.get("uses", "")]
    assert [one["name"] for one in uploaded] == ["packages"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_release_notes_are_the_section_of_the_changelog() -> None:
    notes = [str(PROJECT / "scripts/release-notes")]
    found = subprocess.run([*notes, "v0.2.0"], capture_output=True, text=True, check=True)
    assert "### Added" in found.stdout
    assert "## 0." not in found.stdout
    absent = subprocess.run([*notes, "v9.9.9"], capture_output=True, text=True, check=False)
    assert absent.returncode == 1
    assert "no section 9.9.9" in absent.stderr
