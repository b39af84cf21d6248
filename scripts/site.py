"""Build the documentation as a site: English in site/, Turkish in site/tr/.

    .venv/bin/python scripts/site.py [FOLDER]

`page.tr.md` is the Turkish form of `page.md`; a page without one is shown in English there too.
Nothing is loaded from other hosts. Exits with 1 if a page has a link that leads nowhere.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SECTIONS = {
    "tutorial": ("Tutorials", "Eğitimler"),
    "how-to": ("How-to guides", "Kılavuzlar"),
    "reference": ("Reference", "Başvuru"),
    "explanation": ("Explanation", "Açıklamalar"),
    "decisions": ("Decisions", "Kararlar"),
}
LANGUAGES = ("en", "tr")
TITLES = {"en": "Hasat documentation", "tr": "Hasat belgeleri"}
# The repository has these files, the site does not.
_LINK_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./){2,}[^)]*\)")


def build(language: str, folder: Path) -> bool:
    """Build the site of one language, and return whether all links lead somewhere."""
    with tempfile.TemporaryDirectory() as stage:
        pages = Path(stage, "docs")
        copy_pages(language, pages)
        Path(stage, "zensical.toml").write_text(configuration(language, pages), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
        done = subprocess.run(command, cwd=stage, check=False)
        shutil.copytree(Path(stage, "site"), folder, dirs_exist_ok=True)
    return done.returncode == 0


def copy_pages(language: str, folder: Path) -> None:
    """Copy the documentation with the pages of one language under their plain names."""
    shutil.copytree(DOCS, folder)
    for translated in folder.rglob("*.tr.md"):
        plain = translated.with_name(translated.name.replace(".tr.md", ".md"))
        if language == "tr" or not plain.exists():
            translated.replace(plain)
        else:
            translated.unlink()
    for page in folder.rglob("*.md"):
        text = _LINK_OUTSIDE.sub(r"\1", page.read_text(encoding="utf-8"))
        page.write_text(text.replace(".tr.md)", ".md)").replace(".tr.md#", ".md#"), "utf-8")


def configuration(language: str, pages: Path) -> str:
    """Return the configuration of Zensical, in TOML (a JSON string or list is valid TOML)."""
    other_prefix = {"en": "./", "tr": "../"}[language]
    navigation = ",\n  ".join(
        f"{{{json.dumps(titles[LANGUAGES.index(language)], ensure_ascii=False)} = "
        f"{json.dumps(list(section_pages(pages, section)))}}}"
        for section, titles in SECTIONS.items()
    )
    return f"""
[project]
site_name = "{TITLES[language]}"
docs_dir = "docs"
site_dir = "site"
use_directory_urls = false
nav = [
  "README.md",
  {navigation},
]

[project.theme]
language = "{language}"
font = false
features = ["navigation.sections", "navigation.top", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"

[[project.extra.alternate]]
name = "English"
link = "{other_prefix}index.html"
lang = "en"

[[project.extra.alternate]]
name = "Türkçe"
link = "{other_prefix}tr/index.html"
lang = "tr"
"""


def section_pages(pages: Path, section: str) -> Iterator[str]:
    """Yield the pages of a section, the overview first."""
    found = sorted((pages / section).glob("*.md"), key=lambda page: (page.stem != "README", page))
    for page in found:
        yield page.relative_to(pages).as_posix()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    shutil.rmtree(folder, ignore_errors=True)
    complete = [
        build(language, folder if language == "en" else folder / "tr") for language in LANGUAGES
    ]
    sys.exit(0 if all(complete) else 1)


if __name__ == "__main__":
    main()
