"""Secrets in addresses are shown nowhere; no settings file keeps a start busy."""

import io
import json
from pathlib import Path

import pytest
import structlog

from hasat.errors import SettingsError
from hasat.fetch.workers_file import read_workers
from hasat.logs import configure_logging
from hasat.settings import load_settings
from hasat.settings.reference import shown_values
from hasat.text import mask_addresses

TOKEN = "s3cr3t-t0k3n-value"


def _bomb(levels: int, merge: bool) -> str:
    lines = ["a0: &a0 {x: 1}" if merge else "a0: &a0 [x]"]
    for level in range(1, levels):
        parts = ", ".join([f"*a{level - 1}"] * 9)
        value = f"{{<<: [{parts}]}}" if merge else f"[{parts}]"
        lines.append(f"a{level}: &a{level} {value}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["hasat.yaml", "jobs/daily.yaml", "webhooks.yaml"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (_bomb(30, merge=False), "more than 50,000 values"),
        (_bomb(30, merge=True), "more than 50,000 values"),
        ("[" * 100_000, "nested too deeply"),
        ("x: " + "a" * 2_000_000, "larger than 1 MB"),
        ("a: &a [*a]", "nested too deeply or contains itself"),
    ],
    ids=["aliases", "merges", "depth", "size", "itself"],
)
def test_a_file_that_expands_without_end_is_one_sentence(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(SettingsError, match=sentence):
        load_settings(environ={"HASAT_CONFIG": str(tmp_path), "HASAT_HOME": str(tmp_path)})


def test_thousands_of_mistakes_are_counted_and_long_values_cut(tmp_path: Path) -> None:
    lines = [f"unknown_{number}: 1" for number in range(2000)]
    (tmp_path / "hasat.yaml").write_text("\n".join([*lines, f"serve: {{port: {'9' * 9000}}}"]))
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={"HASAT_CONFIG": str(tmp_path), "HASAT_HOME": str(tmp_path)})
    assert "'unknown_0'" in caught.value.message
    assert "There are 1,951 more problems." in caught.value.message
    assert len(caught.value.message) < 20_000
    (tmp_path / "hasat.yaml").write_text(f"serve: {{port: {'9' * 9000}}}")
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={"HASAT_CONFIG": str(tmp_path), "HASAT_HOME": str(tmp_path)})
    assert len(caught.value.message) < 1000


def test_structures_nested_too_deeply_are_one_sentence(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "workers.json").write_text(deep)
    with pytest.raises(SettingsError, match="is not valid JSON"):
        read_workers(tmp_path / "workers.json")
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_WEBHOOKS_ENDPOINTS": deep}
    with pytest.raises(SettingsError, match="is not JSON"):
        load_settings(environ=environ)


@pytest.mark.parametrize(
    "variable",
    ["HASAT_WEBHOOKS_HTTP_URL", "HASAT_GIB_PK_LIST_URL", "HASAT_ARCHIVES_SERVICE_URL"],
)
def test_the_token_of_an_address_is_shown_nowhere(tmp_path: Path, variable: str) -> None:
    given = {"HASAT_HOME": str(tmp_path), variable: f"https://x.example/a?token={TOKEN}&v=1#x"}
    settings = load_settings(environ=given)
    assert TOKEN not in json.dumps(shown_values(settings))
    stream = io.StringIO()
    configure_logging(settings, stream=stream)
    structlog.get_logger("test").warning(f"cannot reach {given[variable]}, with {TOKEN}")
    assert "cannot reach" in stream.getvalue()
    assert TOKEN not in stream.getvalue()
    with pytest.raises(SettingsError) as caught:
        load_settings(environ=given | {variable: f"ftp://me:{TOKEN}@x.example/?sig={TOKEN}"})
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        f"https://x.example/a?token={TOKEN}",
        f"https://x.example/a?x=1&X-Amz-Signature={TOKEN}",
        f"https://me:{TOKEN}@x.example/a",
        f"postgresql://me:pass/word{TOKEN}@db.example/hasat",
        f"postgresql://db.example/hasat?password={TOKEN}",
        f"nats://{TOKEN}@x.example:4222",
        f"https://x.example/#access_token={TOKEN}",
    ],
)
def test_addresses_in_any_text_lose_their_secrets(address: str) -> None:
    masked = mask_addresses(f"Cannot reach '{address}': refused.")
    assert TOKEN not in masked
    assert ".example" in masked


def test_what_is_no_secret_stays() -> None:
    text = "GET https://v3.example/fixtures?league=39&season=2026 answered 500"
    assert mask_addresses(text) == text
