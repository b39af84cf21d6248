"""The extras: declared in the package as the code names them, and named where one is missing."""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from unittest import mock

import pytest
from packaging.requirements import Requirement

from hasat.cli.source_commands import source_command
from hasat.extras import EXTRAS, Extra, MissingExtraError, extra_of, is_installed, require_extra
from hasat.settings import load_settings
from hasat.source import Source
from hasat.source.installed import (
    check_platform_extras,
    installed_sources,
    missing_configuration,
    missing_extras,
)
from support.installed import installed

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def toys() -> Iterator[Extra]:
    """An extra that is not installed."""
    extra = Extra("toys", ("no_such_module",), "toys")
    with mock.patch.dict(EXTRAS, {"toys": extra}):  # type: ignore[arg-type]
        yield extra


def test_the_package_declares_the_extras_of_the_code() -> None:
    declared = PROJECT["optional-dependencies"]
    assert {*declared} == {*EXTRAS, "all", "bench"}
    assert Requirement(declared["all"][0]).extras == {*EXTRAS}
    core = {Requirement(one).name for one in PROJECT["dependencies"]}
    distributions = packages_distributions()
    for extra in EXTRAS.values():
        named = {Requirement(one).name.lower() for one in declared[extra.name]}
        assert not named & core
        tops = {module.partition(".")[0] for module in extra.modules}
        brought = {one.lower() for top in tops for one in distributions.get(top, ())}
        assert named <= brought, extra.name
        assert is_installed(extra.name)


def test_a_module_of_an_extra_is_recognised() -> None:
    assert extra_of("shapely.geometry") == "gis"
    assert extra_of("opentelemetry.sdk.trace") == "otel"
    assert extra_of("shapely_other") is None


def test_a_missing_extra_is_an_error_that_says_how_to_install_it(toys: Extra) -> None:
    assert not is_installed("toys")
    with pytest.raises(MissingExtraError) as caught:
        require_extra("toys", "The box")
    assert caught.value.message == "The box needs the extra toys, which is not installed."
    assert caught.value.remedy == "Install it with: pip install 'hasat[toys]' (it adds toys)."


def test_a_source_without_its_extra_is_off_and_says_why(toys: Extra) -> None:
    def fail() -> None:
        raise AssertionError("must not be loaded")

    made = Source("box", "Toys", extra="toys", commands=fail, pages=fail, simulator=fail)  # type: ignore[arg-type]
    with installed(box=made):
        settings = load_settings(environ={})
        [source] = [one for one in installed_sources().sources if one.name == "box"]
        assert source.pages is None
        assert source.simulator is None
        assert source.routers() == ()
        why = missing_configuration(source, settings)
        assert why is not None
        assert "needs the extra toys" in why
        assert missing_extras(settings) == {"box": "toys"}
        assert "needs the extra toys" in source_command("box").help


def test_a_source_cannot_need_an_unknown_extra() -> None:
    with pytest.raises(ValueError, match="no extra named 'planes'"):
        Source("box", "Toys", extra="planes")


def test_a_source_whose_import_needs_an_extra_is_broken_by_its_name(
    toys: Extra, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Lazy:
        def __getattr__(self, name: str) -> object:
            raise ModuleNotFoundError("No module", name="no_such_module.part")

    with installed(box=Source("box", "Toys")):
        monkeypatch.setitem(sys.modules, "toy_sources", Lazy())
        [broken] = installed_sources().broken
        assert "box needs the extra toys, which is not installed." in broken.reason


def test_a_setting_that_needs_an_extra_prevents_the_start() -> None:
    settings = load_settings(environ={"HASAT_NATS_URL": "nats://127.0.0.1:9"})
    check_platform_extras(settings)
    with mock.patch.dict(EXTRAS, {"nats": Extra("nats", ("no_such_module",), "changes")}):  # type: ignore[arg-type]
        assert missing_extras(settings) == {"nats.url": "nats"}
        with pytest.raises(MissingExtraError, match=r"nats\.url needs the extra nats"):
            check_platform_extras(settings)
