"""`hasat source new` writes the example under another name."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hasat.cli import app
from hasat.cli.new_source import render
from hasat.errors import HasatError

PROJECT = Path(__file__).parents[3]


def test_the_wheel_contains_the_example() -> None:
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    [(example, place)] = build["targets"]["wheel"]["force-include"].items()
    assert (PROJECT / example / "pyproject.toml").exists()
    assert place == "hasat/cli/skeleton"


def test_every_place_has_the_new_name(tmp_path: Path) -> None:
    arguments = ["source", "new", "air_quality", "--folder", str(tmp_path), "--json"]
    written = json.loads(CliRunner().invoke(app, arguments).output)
    package = tmp_path / "hasat-source-air-quality"
    assert written["folder"] == str(package)
    files = {str(one.relative_to(package)) for one in package.rglob("*") if one.is_file()}
    assert files == set(written["files"]) == {path for path, _ in render("air_quality")}
    assert "src/hasat_source_air_quality/__init__.py" in files
    text = "".join((package / one).read_text("utf-8") for one in files)
    assert "example" not in text.lower()
    assert 'air_quality = "hasat_source_air_quality:SOURCE"' in text
    assert "class AirQualitySettings(Section)" in text
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, HasatError)
    assert "exists already" in again.exception.message


@pytest.mark.parametrize(
    "name", ["", "Air", "1st", "a__b", "a-b", "a" * 26, "../x", "gib", "doctor", "serve", "copy"]
)
def test_a_name_that_cannot_be_used_is_refused(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["source", "new", name, "--folder", str(tmp_path)])
    assert isinstance(result.exception, HasatError)
    assert list(tmp_path.iterdir()) == []
