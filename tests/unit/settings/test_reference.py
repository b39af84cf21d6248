"""The reference and the examples say what the code does."""

import re
from pathlib import Path

import pytest

from hasat.settings import load_settings
from hasat.settings.aliases import legacy_names
from hasat.settings.files import file_names
from hasat.settings.reference import reference
from hasat.settings.tree import leaves, sections, settings_model

PROJECT = Path(__file__).parents[3]
EXAMPLES = PROJECT / "deploy" / "config.example"


def test_the_reference_is_up_to_date() -> None:
    page = PROJECT / "docs" / "reference" / "settings.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        "Run: hasat config reference > docs/reference/settings.md"
    )


def test_every_setting_and_section_is_described() -> None:
    for leaf in leaves().values():
        described = leaf.field.description or ""
        assert re.fullmatch(r"[A-Z`].*\.", described), leaf.key
    for key, section in sections().items():
        assert (section.__doc__ or "").endswith("."), key


def test_foreign_names_lead_to_settings() -> None:
    assert set(legacy_names().environment) <= set(leaves())


def test_defaults_pass_their_own_checks() -> None:
    model = settings_model()
    assert model.model_validate(model(home=Path("/x")).model_dump()).home == Path("/x")


def test_the_examples_load_without_a_remark(tmp_path: Path) -> None:
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_CONFIG": str(EXAMPLES)}
    loaded = load_settings({}, environ, PROJECT)
    assert loaded.remarks == ()
    assert loaded.football.tracked_leagues[0].name == "Süper Lig"
    assert loaded.tkgm.workers_file == EXAMPLES / "workers.json"


@pytest.mark.parametrize("name", [*file_names(), "jobs/daily.yaml", "jobs/static.yaml"])
def test_there_is_an_example_of_every_file(name: str) -> None:
    assert (EXAMPLES / name).read_text(encoding="utf-8").startswith("# ")
