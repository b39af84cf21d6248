"""The platform names no source: it knows only what sources declare."""

import re
from pathlib import Path

from hasat.source.installed import all_sources

PACKAGE = Path(__file__).parents[3] / "src" / "hasat"
# Migrations are frozen; catalogues quote the texts of the sources too.
ELSEWHERE = ("sources/", "store/migrations/", "locale/", "web/static/")
SUFFIXES = {".py", ".sql", ".html", ".ts", ".css"}


def test_no_file_outside_the_sources_names_one() -> None:
    names = re.compile("|".join(source.name for source in all_sources()), re.IGNORECASE)
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in SUFFIXES and not str(path.relative_to(PACKAGE)).startswith(ELSEWHERE)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        # Upper-case İ has no lower case without a dot: GİB.
        if names.search(line.replace("İ", "I"))
    ]
    assert found == []
