"""The build context of the image: the files that its COPY lines and ignore file select."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path


def copy_context(root: Path, containerfile: Path, into: Path, ignore_file: str) -> None:
    """Copy what the COPY lines of the first stage copy from the build context `root`."""
    text = containerfile.read_text("utf-8").replace("\\\n", " ")
    first_stage = re.split(r"^FROM ", text, flags=re.MULTILINE)[1]
    ignored = _Ignored((root / ignore_file).read_text("utf-8"))
    for words in re.findall(r"^COPY (.*)$", first_stage, re.MULTILINE):
        *sources, target = words.split()
        for source in sources:
            # A folder stands for its contents; a file keeps its name in a target with a slash.
            place = into / target
            if (root / source).is_file() and target.endswith("/"):
                place /= source
            for file in _files(root / source):
                if not ignored(file.relative_to(root)):
                    copy = place / file.relative_to(root / source)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, copy)


def _files(path: Path) -> Iterator[Path]:
    return iter([path]) if path.is_file() else (one for one in path.rglob("*") if one.is_file())


class _Ignored:
    """The rules of .dockerignore: the last line that matches a path or a folder above it counts."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        self._rules = [
            (not line.startswith("!"), _pattern(line.removeprefix("!").strip("/")))
            for line in lines
            if line and not line.startswith("#")
        ]

    def __call__(self, path: Path) -> bool:
        ignored = False
        names = [path.as_posix(), *(parent.as_posix() for parent in path.parents)][:-1]
        for ignores, pattern in self._rules:
            if any(pattern.fullmatch(name) for name in names):
                ignored = ignores
        return ignored


def _pattern(glob: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    return re.compile("".join(parts.get(piece, re.escape(piece)) for piece in pieces))
