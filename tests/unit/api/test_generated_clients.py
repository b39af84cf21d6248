"""The OpenAPI document is good enough to generate clients from it: checked with TypeScript."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hasat.api.app import create_app
from hasat.api.openapi import schema_of
from hasat.jobs import Catalogue
from hasat.settings import load_settings
from hasat.source.installed import all_sources

PROGRAM = Path(__file__).parents[2] / "support/typescript"
NPM_SECONDS = 300


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = load_settings(environ={"HASAT_HOME": str(tmp_path_factory.mktemp("home"))})
    nothing: Any = None
    app = create_app(settings, nothing, Catalogue.of((), settings), all_sources())
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names) > 100
    assert [name for name in names if not name.isidentifier()] == []


def test_every_json_response_has_a_schema(document: dict[str, Any]) -> None:
    untyped = [
        f"{name}: {status}"
        for name, operation in operations(document)
        for status, response in operation["responses"].items()
        for media, content in response.get("content", {}).items()
        if media == "application/json" and not content.get("schema")
    ]
    assert untyped == []


def test_a_schema_of_an_example_accepts_what_an_upstream_may_leave_out() -> None:
    assert schema_of({"a": 1, "b": [{"c": "x"}], "d": None, "e": []}) == {
        "type": ["object", "null"],
        "properties": {
            "a": {"type": ["integer", "null"]},
            "b": {
                "type": ["array", "null"],
                "items": {
                    "type": ["object", "null"],
                    "properties": {"c": {"type": ["string", "null"]}},
                },
            },
            "d": {},
            "e": {"type": ["array", "null"], "items": {}},
        },
    }


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """The packages of package-lock.json, installed once for this environment."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine")
    lock = (PROGRAM / "package-lock.json").read_bytes()
    folder = Path(sys.prefix) / f"typescript-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PROGRAM / name, folder)
        install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
        try:
            subprocess.run(
                install, cwd=folder, capture_output=True, check=True, timeout=NPM_SECONDS
            )
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"npm cannot install the packages of package-lock.json: {error}")
        (folder / "installed").touch()
    return folder / "node_modules"


def test_a_typescript_client_is_generated_and_compiles(
    document: dict[str, Any], node_modules: Path, tmp_path: Path
) -> None:
    shutil.copytree(PROGRAM, tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").symlink_to(node_modules)
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    programs = node_modules / ".bin"
    generate = ["openapi-typescript", "openapi.json", "--output", "schema.d.ts"]
    for command in (generate, ["tsc", "--project", "."]):
        done = subprocess.run(
            [programs / command[0], *command[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
