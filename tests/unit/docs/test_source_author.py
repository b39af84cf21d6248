"""The pages for authors of sources show the example as it is, and every name of the contract."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import hasat.source
from hasat.source import Dataset, PerKey, Source, WholeList

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "hasat-source-example"
HOW_TO = (PROJECT / "docs/how-to/write-a-source.md").read_text("utf-8")
REFERENCE = (PROJECT / "docs/reference/source.md").read_text("utf-8")
_BLOCK = re.compile(r"(?ms)^```\w* ?(?P<info>[^\n]*)\n(?P<text>.*?)^```$")
EXCERPTS = [
    (found["info"].removeprefix('title="').removesuffix('"'), found["text"])
    for found in _BLOCK.finditer(HOW_TO)
]


@pytest.mark.parametrize(("file", "text"), EXCERPTS)
def test_every_block_is_part_of_the_example(file: str, text: str) -> None:
    assert text in (EXAMPLE / file).read_text("utf-8")


def test_the_example_is_shown_in_all_its_parts() -> None:
    shown = {file for file, _ in EXCERPTS}
    files = [*EXAMPLE.glob("src/**/*.py"), *EXAMPLE.glob("tests/*.py")]
    assert {str(one.relative_to(EXAMPLE)) for one in files} <= shown


def test_the_reference_names_every_name_and_every_field() -> None:
    named = set(re.findall(r"`(\w+)", REFERENCE)) | set(re.findall(r"\b\w+\b", REFERENCE))
    contract = [one.name for kind in (Source, Dataset, WholeList, PerKey) for one in fields(kind)]
    missing = [name for name in (*hasat.source.__all__, *contract) if name not in named]
    assert missing == []
