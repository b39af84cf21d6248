"""The settings of a source of another package, and those of a source that cannot be loaded."""

import io
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from hasat.console.runtime import build_catalogue
from hasat.errors import SettingsError
from hasat.logs import configure_logging
from hasat.settings import Section, Settings, load_settings
from hasat.settings.reference import reference, shown_values
from hasat.source.installed import (
    active_sources,
    all_sources,
    installed_sources,
    missing_configuration,
)
from hasat.sources.gib.settings import GibSettings
from hasat.text import HIDDEN
from hasat.upstreams import declared_upstreams
from support.toy_packages import TOY, installed

KEY = "shop-key-4711"
NUMBERS = itertools.count()


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Section]]:
    """The section of an installed toy shop."""
    folder = tmp_path / "packages"
    folder.mkdir()
    module = f"toy_shop_{next(NUMBERS)}"
    with installed(folder, monkeypatch, {module: TOY}, toys=f"{module}:TOYS"):
        [source] = [one for one in all_sources() if one.name == "toys"]
        assert source.settings is not None
        yield source.settings


def load(folder: Path, **environ: str) -> Settings:
    return load_settings({}, {"HASAT_HOME": "/nowhere", "HASAT_CONFIG": str(folder), **environ})


def values(settings: Settings) -> dict[str, Any]:
    return {k: v for k, v in shown_values(settings).items() if k.startswith("toys.")}


def test_variables_and_the_legacy_name_set_the_section(toys: type[Section], tmp_path: Path) -> None:
    loaded = load(tmp_path, HASAT_TOYS_DAILY="7", HASAT_TOYS_RETRIES_COUNT="9", TOY_SHOP_KEY=KEY)
    assert values(loaded) == {
        "toys.api_key": HIDDEN,
        "toys.url": "https://toys.example",
        "toys.daily": 7,
        "toys.retries.count": 9,
    }
    assert loaded.origin("toys.api_key").where == "TOY_SHOP_KEY"
    assert loaded.section(toys).api_key.get_secret_value() == KEY  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("toys.yaml", "daily: 7\nretries:\n  count: 9\n"),
        ("toys.yaml", "toys:\n  daily: 7\n  retries: {count: 9}\n"),
        ("hasat.yaml", "toys:\n  daily: 7\n  retries: {count: 9}\n"),
    ],
)
def test_files_set_the_section(toys: object, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    loaded = load(tmp_path)
    assert values(loaded) | {"toys.daily": 7, "toys.retries.count": 9} == values(loaded)
    assert loaded.files == (str(tmp_path / name),)


def test_mistakes_are_reported_with_suggestions(toys: object, tmp_path: Path) -> None:
    (tmp_path / "toys.yaml").write_text("dayly: 7\n", "utf-8")
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, HASAT_TOYS_RETRIES_COUNT="10", HASAT_TOYS_KEY=KEY, TOY_SHOP_CACHE="x")
    text = caught.value.message
    assert "there is no setting 'dayly'; did you mean 'daily'?" in text
    assert "toys.retries.count: '10' (HASAT_TOYS_RETRIES_COUNT) must be at most 9." in text
    assert "HASAT_TOYS_KEY: there is no such setting; did you mean 'HASAT_TOYS_API_KEY'?" in text
    assert KEY not in text


def test_a_retired_name_is_a_remark(toys: object, tmp_path: Path) -> None:
    [remark] = load(tmp_path, TOY_SHOP_CACHE="x").remarks
    assert remark == "TOY_SHOP_CACHE has no effect: there is no cache."


def test_the_secret_is_masked_in_logs(toys: object, tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    stream = io.StringIO()
    try:
        configure_logging(load(tmp_path, TOY_SHOP_KEY=KEY), stream=stream)
        structlog.get_logger("hasat.toys").info("request", url=f"https://toys.example?key={KEY}")
        logging.getLogger("foreign").warning("header %s", KEY)
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(False)
        structlog.reset_defaults()
    assert stream.getvalue().count(HIDDEN) == 2
    assert KEY not in stream.getvalue()


def test_the_reference_lists_the_section(toys: object) -> None:
    page = reference()
    assert "## `toys`\n\nThe toy shop.\n" in page
    assert "`HASAT_TOYS_API_KEY`<br>`TOY_SHOP_KEY`" in page
    assert "| `toys.retries.count` | `3` | a whole number from 1 to 9 |" in page
    assert "`toys.yaml`" in page
    assert "| `TOY_SHOP_CACHE` | there is no cache. |" in page


def test_the_upstream_takes_its_limit_from_the_section(toys: object, tmp_path: Path) -> None:
    declared = {one.name: one.day_limit for one in declared_upstreams(load(tmp_path))}
    assert declared["toys"] == 100
    assert declared["gib"] == 500
    [only] = declared_upstreams(load(tmp_path, HASAT_SOURCES="toys", HASAT_TOYS_DAILY="9"))
    assert (only.name, only.day_limit) == ("toys", 9)


def test_only_the_named_sources_are_active(toys: object, tmp_path: Path) -> None:
    settings = load(tmp_path, HASAT_SOURCES="toys,football", TOY_SHOP_KEY=KEY)
    assert [one.name for one in active_sources(settings)] == ["football", "toys"]
    reasons = {one.name: missing_configuration(one, settings) for one in all_sources()}
    assert reasons["toys"] is None
    assert reasons["gib"] == "gib is not one of the active sources (HASAT_SOURCES)."
    assert reasons["football"] == "API-Football needs a key: set API_FOOTBALL_KEY."
    jobs = build_catalogue(settings)
    assert not any(job.enabled for job in jobs if job.source in ("gib", "tkgm", "football"))
    everything = load(tmp_path)
    assert build_catalogue(everything).get("gib_sync").enabled
    [toy] = [one for one in active_sources(everything) if one.name == "toys"]
    assert missing_configuration(toy, everything) == "The toy shop needs a key."


def test_an_active_source_must_be_installed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no source is named 'footbal'; did you mean 'footb"):
        load(tmp_path, HASAT_SOURCES="footbal")


@pytest.mark.parametrize(
    ("name", "collision"),
    [
        ("serve", "settings section is named serve"),
        ("origins", "settings section is named origins"),
        ("gib", "settings section is named gib"),
        ("hasat", "settings file is named hasat.yaml"),
        ("api", "settings file is named api.yaml"),
    ],
)
def test_a_section_must_not_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, collision: str
) -> None:
    module = f"toy_shop_{next(NUMBERS)}"
    text = TOY.replace('Source(\n    "toys"', f'Source(\n    "{name}"')
    with (
        installed(tmp_path, monkeypatch, {module: text}, zzz=f"{module}:TOYS"),
        pytest.raises(SettingsError, match=collision),
    ):
        load_settings(environ={})


def test_a_variable_must_not_belong_to_two_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"toy_shop_{next(NUMBERS)}"
    text = TOY.replace("TOY_SHOP_KEY", "API_FOOTBALL_KEY")
    with (
        installed(tmp_path, monkeypatch, {module: text}, toys=f"{module}:TOYS"),
        pytest.raises(SettingsError, match="variable is named API_FOOTBALL_KEY"),
    ):
        load_settings(environ={})


@pytest.mark.parametrize("text", ["import nothing_like_this", "TOYS = 7"])
def test_settings_of_a_source_that_cannot_be_loaded_are_remarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "toys.yaml").write_text("daily: 7\n", "utf-8")
    (config / "hasat.yaml").write_text("toys:\n  daily: 7\n", "utf-8")
    module = f"toy_shop_{next(NUMBERS)}"
    with installed(tmp_path, monkeypatch, {module: text}, toys=f"{module}:TOYS"):
        loaded = load(config, HASAT_TOYS_API_KEY=KEY, HASAT_SOURCES="toys,gib")
        assert [one.name for one in installed_sources().broken] == ["toys"]
    assert sorted(loaded.remarks) == sorted(
        [
            "HASAT_TOYS_API_KEY has no effect: the source toys cannot be loaded.",
            f"{config}/toys.yaml has no effect: the source toys cannot be loaded.",
            f"{config}/hasat.yaml:1: toys has no effect: the source cannot be loaded.",
        ]
    )
    assert loaded.section(GibSettings).batch_size == 25_000


def test_a_section_without_defaults_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"toy_shop_{next(NUMBERS)}"
    text = TOY.replace("Field(default=100, ", "Field(")
    with (
        installed(tmp_path, monkeypatch, {module: text}, toys=f"{module}:TOYS"),
        pytest.raises(SettingsError, match="toys have no default: daily"),
    ):
        load_settings(environ={})


def test_a_section_of_no_installed_source_is_an_error() -> None:
    class Unknown(Section):
        """Belongs to no source."""

    with pytest.raises(SettingsError, match="no section Unknown"):
        load_settings(environ={}).section(Unknown)
