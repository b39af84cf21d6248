"""Everything that README and docs name exists: commands, options, settings, links, targets."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hasat.settings.aliases import legacy_names
from hasat.settings.tree import leaves
from support.documented_commands import command_error, commands_in_markdown
from support.installed import installed

PROJECT = Path(__file__).parents[3]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("deploy/*.md")])
# Variables of the tests and of running processes, not settings.
OWN_VARIABLES = {
    "HASAT_TEST_SERVER",
    "HASAT_TEST_NATS",
    "HASAT_TEST_PGBOUNCER",
    "HASAT_CHROMIUM",
    "HASAT_LANG",
    "HASAT_LISTENING_FD",
    "HASAT_PARENT_FD",
}
BUILD_VARIABLES = set(re.findall(r"HASAT_BUILD_\w+", (PROJECT / "hatch_build.py").read_text()))


@pytest.fixture(autouse=True, scope="module")
def example() -> Iterator[None]:
    """The example of a source, whose commands and settings the pages name."""
    folder = str(PROJECT / "examples" / "hasat-source-example" / "src")
    sys.path.insert(0, folder)
    try:
        from hasat_source_example import SOURCE

        with installed(example=SOURCE):
            yield
    finally:
        sys.path.remove(folder)


def _id(page: Path) -> str:
    return str(page.relative_to(PROJECT))


# These two are generated and have their own tests.
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in ("commands.md", "settings.md")], ids=_id
)
def test_every_command_shown_exists_with_its_options(page: Path) -> None:
    shown = list(commands_in_markdown(page.read_text("utf-8")))
    wrong = {" ".join(words): error for words in shown if (error := command_error(words))}
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_link_and_picture_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert not missing


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_anchor_of_a_link_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8"))
    local = [(page.parent / path if path else page, a) for path, a in links if "://" not in path]
    missing = [f"{_id(target)}#{a}" for target, a in local if a not in _anchors(target)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_setting_named_exists(page: Path) -> None:
    known = {name for leaf in leaves().values() for name in leaf.names}
    known |= (
        {name for names in legacy_names().environment.values() for name in names}
        | OWN_VARIABLES
        | BUILD_VARIABLES
    )
    named = set(re.findall(r"\bHASAT_[A-Z][A-Z_]*[A-Z]\b", page.read_text("utf-8")))
    # Every variable has a variant with _FILE that names a file.
    unknown = {name for name in named - known if name.removesuffix("_FILE") not in known}
    assert not unknown


def test_every_target_of_make_that_is_shown_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        target
        for page in PAGES
        for target in re.findall(r"(?:^ {4}|`)make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test"} <= shown <= targets


def test_the_index_names_every_page() -> None:
    index = (PROJECT / "docs" / "README.md").read_text("utf-8")
    folders = ("tutorial", "how-to", "reference", "explanation")
    pages = [p for folder in folders for p in (PROJECT / "docs" / folder).glob("*.md")]
    missing = [p.name for p in pages if f"({p.parent.name}/{p.name})" not in index]
    assert not missing


def test_the_list_of_decisions_names_every_decision() -> None:
    folder = PROJECT / "docs" / "decisions"
    index = (folder / "README.md").read_text("utf-8")
    assert re.findall(r"\]\((\d.*?)\)", index) == sorted(p.name for p in folder.glob("[0-9]*.md"))


def test_the_site_has_every_page_in_both_languages_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    built = subprocess.run(
        [sys.executable, PROJECT / "scripts/site.py", tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for page in (PROJECT / "docs").rglob("*.md"):
        path = page.relative_to(PROJECT / "docs").as_posix().removesuffix(".md").removesuffix(".tr")
        path = re.sub("README$", "index", path)
        assert (tmp_path / "site" / f"{path}.html").exists()
        assert (tmp_path / "site/tr" / f"{path}.html").exists()
    turkish = (tmp_path / "site/tr/tutorial/integrator.html").read_text("utf-8")
    assert "Tek müşteri sorgulama" in turkish
    loaded = re.compile(r"""<(?:script|img|link|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""")
    for html in (tmp_path / "site").rglob("*.html"):
        assert not loaded.search(html.read_text("utf-8")), html.name
