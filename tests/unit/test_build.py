"""The build: the version, the links of the project, and the bundle that a wheel must have."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## 0.4.0\n\n## 0.3.0\n"


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VERSION", "REPOSITORY", "WITHOUT_MAP"):
        monkeypatch.delenv(f"HASAT_BUILD_{name}", raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_the_version_is_that_of_the_tag(build: ModuleType, checkout: Path) -> None:
    assert build.find_version(checkout) == "0.4.0.dev0"
    git(checkout, "init")
    git(checkout, "commit", "--allow-empty", "--message", "first")
    assert build.find_version(checkout) == "0.4.0.dev0"
    git(checkout, "tag", "v0.3.0")
    assert build.find_version(checkout) == "0.3.0"
    git(checkout, "commit", "--allow-empty", "--message", "second")
    assert build.find_version(checkout) == "0.4.0.dev1"


def test_an_sdist_keeps_its_version_and_links(build: ModuleType, checkout: Path) -> None:
    text = "Name: hasat\nVersion: 0.3.1\nProject-URL: Source, https://example.com/x\n\nVersion: 9\n"
    (checkout / "PKG-INFO").write_text(text)
    assert build.find_version(checkout) == "0.3.1"


def test_a_variable_sets_the_version(
    build: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASAT_BUILD_VERSION", "v1.0.0rc1")
    assert build.find_version(checkout) == "1.0.0rc1"
    monkeypatch.setenv("HASAT_BUILD_VERSION", "latest")
    with pytest.raises(RuntimeError, match=r"like 1\.2\.3.*'latest'"):
        build.find_version(checkout)


def test_the_links_name_the_repository(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASAT_BUILD_REPOSITORY", "https://git.example/hasat/")
    metadata: dict[str, Any] = {}
    build.LinksHook.update(None, metadata)
    assert metadata["urls"]["Issues"] == "https://git.example/hasat/issues"


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_a_package_without_the_map_is_not_built_by_accident(
    build: ModuleType, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("npm cannot be reached")

    monkeypatch.setattr(build, "build_bundle", fail)
    monkeypatch.setattr(build, "BUNDLE", tmp_path / "bundle")
    hook = SimpleNamespace(target_name=target)
    with pytest.raises(RuntimeError, match=r"HASAT_BUILD_WITHOUT_MAP=1.*npm cannot be reached"):
        build.IslandsHook.initialize(hook, "standard", {})
    build.IslandsHook.initialize(hook, "editable", {})
    monkeypatch.setenv("HASAT_BUILD_WITHOUT_MAP", "1")
    build.IslandsHook.initialize(hook, "standard", {})
