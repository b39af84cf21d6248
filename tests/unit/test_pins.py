"""The pins: packages that Hasat needs to run apart from those of its tests."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_hasat_needs_to_run_is_pinned_without_the_packages_of_the_tests() -> None:
    runtime = pinned("requirements.txt")
    assert names(PROJECT["project"]["dependencies"]) <= runtime
    assert not names(PROJECT["dependency-groups"]["dev"]) & runtime


def test_the_packages_of_the_tests_are_pinned_on_top_of_the_others() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert lines[0] == "--requirement requirements.txt"
    assert names(PROJECT["dependency-groups"]["dev"]) <= pinned("requirements-dev.txt")
    assert not pinned("requirements-dev.txt") & pinned("requirements.txt")


def pinned(file: str) -> set[str]:
    lines = (ROOT / file).read_text().splitlines()
    return names(line for line in lines if "==" in line)


def names(requirements: Iterable[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", one) for one in requirements)
    return {one[0].lower().replace("_", "-") for one in found if one}
