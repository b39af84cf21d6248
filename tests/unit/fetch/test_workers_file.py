"""workers.json: accepted forms, and error messages for the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from hasat.errors import SettingsError
from hasat.fetch import Endpoint, Request, read_workers


def written(folder: Path, content: Any) -> Path:
    path = folder / "workers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def problem(folder: Path, content: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        read_workers(written(folder, content))
    return str(caught.value)


def test_the_original_form(tmp_path: Path) -> None:
    content = {
        "api_key": "your-secret-api-key",
        "workers": [
            "https://tkgm-proxy-1.example.workers.dev",
            "https://tkgm-proxy-2.example.workers.dev/",
        ],
    }
    workers = read_workers(written(tmp_path, content))
    assert workers.api_key.get_secret_value() == "your-secret-api-key"
    assert "your-secret" not in repr(workers)
    assert workers.endpoints == (
        Endpoint("https://tkgm-proxy-1.example.workers.dev", 2000, 0.2),
        Endpoint("https://tkgm-proxy-2.example.workers.dev", 2000, 0.2),
    )


def test_an_entry_with_all_fields(tmp_path: Path) -> None:
    path = "/parsel/{mahalleId}/{adaNo}/{parselNo}"
    entry = {
        "url": "http://127.0.0.1:8787",
        "daily": 1000,
        "min_interval_ms": 2000,
        "by_number": path,
    }
    content = {"api_key": "k", "workers": ["https://a.example", entry]}
    plain, full = read_workers(written(tmp_path, content), daily=7, min_interval_ms=0).endpoints
    assert plain == Endpoint("https://a.example", 7, 0.0)
    assert full == Endpoint("http://127.0.0.1:8787", 1000, 2.0, path)
    numbers = {"mahalleId": "1", "adaNo": "0", "parselNo": "5"}
    question = Request("", timeout=1.0, by_number=numbers)
    assert full.path_for(question) == "/parsel/1/0/5"
    assert plain.path_for(question) is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not valid JSON (line 1)"),
        ([], "an object with api_key and workers"),
        ({"workers": ["https://a.example"]}, "api_key must be text"),
        ({"api_key": "şifre", "workers": ["https://a.example"]}, "api_key must be text"),
        ({"api_key": "k", "workers": []}, "at least one URL"),
        ({"api_key": "k", "workers": [1]}, "worker 1 must be a URL"),
        ({"api_key": "k", "workers": ["ftp://a.example"]}, "worker 1 is not an http"),
        ({"api_key": "k", "workers": ["http://a.example"]}, "worker 1 must be https"),
        ({"api_key": "k", "workers": ["https://u:p@a.example"]}, "no place for credentials"),
        ({"api_key": "k", "workers": ["https://a.example?x=1"]}, "must not have a query"),
        ({"api_key": "k", "workers": ["https://a.example"] * 2}, "is listed twice"),
        (
            {"api_key": "k", "workers": [{"url": "https://a.example", "dayly": 5}]},
            "unknown fields: dayly",
        ),
        ({"api_key": "k", "workers": [{"url": "https://a.example", "daily": 0}]}, "whole number"),
        ({"api_key": "k", "workers": [{"url": "https://a.example", "daily": "9"}]}, "whole number"),
        ({"api_key": "k", "workers": [{"url": "https://a.example", "by_number": "/x"}]}, "path"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, content: Any, expected: str) -> None:
    assert expected in problem(tmp_path, content)


def test_all_mistakes_are_reported_at_once_without_the_key(tmp_path: Path) -> None:
    content = {"api_key": "very-secret", "workers": ["http://a.example", 3]}
    results = problem(tmp_path, content)
    assert "worker 1" in results
    assert "worker 2" in results
    assert "very-secret" not in results


def test_a_missing_file_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tkgm\.workers_file"):
        read_workers(tmp_path / "none.json", setting="tkgm.workers_file")
