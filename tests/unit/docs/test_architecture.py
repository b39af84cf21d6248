"""The architecture page agrees with the import contract and the tree of modules."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[3]
PAGE = PROJECT / "docs" / "explanation" / "architecture.md"


def _contract() -> list[set[str]]:
    read = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
    [layers] = [c for c in read["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return [set(layer.split(" | ")) for layer in layers["layers"]]


def test_the_page_lists_exactly_the_layers_of_the_contract() -> None:
    section = PAGE.read_text("utf-8").partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`hasat\.[^|]*) \|", section, re.MULTILINE)
    assert [set(re.findall(r"`([\w.]+)`", row)) for row in rows] == _contract()


def test_every_module_on_the_page_exists() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text("utf-8")))
    assert named
    assert not {path for path in named if not (PROJECT / "src" / "hasat" / path).is_file()}
