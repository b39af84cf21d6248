"""A source brings pages, entries of the navigation, static files, labels and translations."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from hasat.errors import SettingsError
from hasat.messages import template
from hasat.pages import Action, NavigationEntry, Page, PageRequest, SourcePages
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.source.installed import all_sources
from hasat.store import Store
from hasat.testing.http import app_client
from hasat.web.site import build_site
from support.complete_app import complete_app
from support.installed import installed

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

BROWSER = {"Accept": "text/html", "Origin": "http://127.0.0.1"}

TEMPLATE = """{% extends layout %}
{% import "parts.html" as part with context %}
{% block head %}<link rel="stylesheet" href="{{ static("bells/bells.css") }}">{% endblock %}
{% block main %}<h1>{{ t("Bells") }}</h1>
<p data-live>{{ t("Rung {count} times", count=data.rung) }} {{ t.label("tone", "deep") }}</p>
{{ part.state("ok") }}
{% endblock %}
"""
CATALOGUE = """msgid ""
msgstr ""
"Language: tr\\n"
"Content-Type: text/plain; charset=utf-8\\n"

msgid "Bells"
msgstr "Çanlar"

msgid "Rung {count} times"
msgstr "{count} kez çaldı"

msgid "Overview"
msgstr "BOZUK"
"""


@dataclass(frozen=True)
class Bells:
    rung: int


async def bells(_request: PageRequest) -> Bells:
    return Bells(3)


async def ring(_request: PageRequest) -> str:
    return "/bells"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    files = {
        "templates/bells.html": TEMPLATE,
        "static/bells.css": "h1 { color: gold }",
        "locale/tr/LC_MESSAGES/bells.po": CATALOGUE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    def pages() -> SourcePages:
        return SourcePages(
            (Page("/bells", "bells", bells, "bells"),),
            tmp_path / "templates",
            (NavigationEntry("bells", template("Bells"), "/bells", order=45),),
            (Action("/bells/ring", "bells.ring", ring),),
            tmp_path / "static",
            {"tone": {"deep": template("Deep")}},
        )

    return Source(
        "bells",
        "Bells of the town",
        pages=pages,
        actions={"bells.ring": "Ring the bells"},
        translations=tmp_path / "locale",
    )


async def test_the_pages_of_a_source_are_part_of_the_dashboard(
    source: Source, settings: Settings, store: Store
) -> None:
    with installed(bells=source):
        app = complete_app(settings, store)
    async with app_client(app) as client:
        page = (await client.get("/bells", headers=BROWSER)).text
        assert "<title>Bells · Hasat</title>" in page
        assert "Rung 3 times Deep" in page
        assert page.index('href="/changes"') < page.index('<a href="/bells" aria-current="page"')
        assert page.index('<a href="/bells"') < page.index('href="/taxpayers"')
        assert (await client.get("/bells.json")).json() == {"rung": 3}
        address = page.partition('"/static/bells/')[2].partition('"')[0]
        assert "gold" in (await client.get(f"/static/bells/{address}")).text
        turkish = (await client.get("/bells", headers={**BROWSER, "Accept-Language": "tr"})).text
        assert "<h1>Çanlar</h1>" in turkish
        assert "3 kez çaldı" in turkish
        assert "BOZUK" not in turkish, "a source cannot change the platform's texts"
        rung = await client.post("/bells/ring", headers=BROWSER)
        assert (rung.status_code, rung.headers["location"]) == (303, "/bells")
        assert "Ring the bells" in (await client.get("/audit", headers=BROWSER)).text


def test_two_pages_with_one_address_are_refused(source: Source) -> None:
    with pytest.raises(SettingsError, match="/bells"):
        build_site([source, source])


def test_the_navigation_leaves_out_inactive_sources(source: Source, tmp_path: Path) -> None:
    settings = load_settings(environ={"HASAT_HOME": str(tmp_path), "HASAT_SOURCES": "football"})
    site = build_site([*all_sources(), source], settings)
    shown = {entry.path for entry in site.navigation if site.is_open(entry, None)}
    assert "/football" in shown
    assert not shown & {"/bells", "/taxpayers", "/parcels"}
