"""The dashboard in a real browser, as an operator uses it."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

# One browser is enough.
pytestmark = pytest.mark.xdist_group("browser")

TITLES = {
    "en": ["Overview", "Quota", "Runs and jobs", "Changes", "Taxpayers", "Football", "Delivery"],
    "tr": ["Genel bakış", "Kota", "Çalışmalar ve işler", "Değişiklikler", "Mükellefler", "Futbol"],
}
# Another tab comes to the front.
HIDE = """() => {
  Object.defineProperty(document, "hidden", { get: () => true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_an_operator_walks_through_the_house(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    """Every page in both languages, by keyboard, wide and on a phone; a run is followed."""
    hosted.environ["HASAT_FOOTBALL_TRACKED_LEAGUES"] = '[{"id": 203, "season": 2026}]'
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    page = context.new_page()
    browser_errors.of(page)
    page.goto(hosted.address)
    for language, titles in TITLES.items():
        page.goto(f"{hosted.address}/?lang={language}")
        for title in titles:
            page.get_by_role("navigation").get_by_role("link", name=title, exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
            expect(page.locator("html")).to_have_attribute("lang", language)
    page.set_viewport_size({"width": 768, "height": 900})
    expect(page.get_by_role("link", name="Doktor")).to_be_in_viewport(ratio=1)
    _by_keyboard(page, hosted)
    page.set_viewport_size({"width": 375, "height": 800})
    for path in ("/", "/runs", "/quota", "/changes", "/taxpayers", "/football", "/doctor"):
        page.goto(hosted.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
    page.goto(f"{hosted.address}/football")
    expect(page.get_by_role("columnheader", name="Injuries")).to_be_in_viewport(ratio=0.9)
    _runs_now(page, hosted)
    assert browser_errors == []
    context.close()


def _by_keyboard(page: Page, installation: Installation) -> None:
    """The first key press offers to skip the navigation; focus can be seen."""
    page.goto(f"{installation.address}/runs?lang=en")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def _runs_now(page: Page, installation: Installation) -> None:
    """A run is started with a button; its page, and one that was open before, tell of its end."""
    watching = page.context.new_page()
    watching.goto(f"{installation.address}/runs?job=housekeeping")
    expect(watching.get_by_text("There are no such runs.")).to_be_visible()
    page.goto(f"{installation.address}/runs")
    page.get_by_role("button", name="Run housekeeping now").click()
    expect(page).to_have_url(re.compile(r"/runs/1$"))
    expect(page.locator("#state .mark")).to_have_text("queued")
    watching.bring_to_front()
    expect(watching.locator("#list").get_by_role("link", name="1", exact=True)).to_be_visible()
    worker = installation.start("worker")
    page.bring_to_front()
    expect(page.locator("#state").get_by_text(re.compile("^(done|nothing to do)$"))).to_be_visible()
    worker.terminate()
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{installation.address}/runs")
    expect(page.locator("#timeline").get_by_text("housekeeping").first).to_be_in_viewport(ratio=1)
    page.goto(f"{installation.address}/runs/1?lang=tr")
    expect(page.get_by_role("button", name="Aynı parametrelerle yeniden çalıştır")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_where_no_event_gets_through_the_page_asks_and_seldom_while_nobody_looks(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    browser_errors.of(page)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.resource_type == "fetch" else None)
    # As a proxy does that keeps an answer until it is whole.
    page.route(lambda url: "/live?at=" in url, lambda route: None)
    page.clock.install()
    page.goto(f"{hosted.address}/runs?job=housekeeping")
    expect(page.get_by_text("There are no such runs.")).to_be_visible()
    hosted.call("jobs", "run", "housekeeping")
    page.clock.run_for(20_000)
    expect(page.locator("#list").get_by_role("link", name="1", exact=True)).to_be_visible()
    page.evaluate(HIDE)
    asked.clear()
    page.clock.run_for(50_000)
    assert asked == []
    # Waits in the browser's own loop, which alone brings its events.
    with page.expect_request(lambda one: one.resource_type == "fetch"):
        page.clock.run_for(20_000)
    assert len(asked) == 1
    assert browser_errors == []
    context.close()


def test_elsewhere_a_key_opens_the_door(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    key = hosted.json("keys", "create", "ops", "--scope", "operate")["key"]
    hosted.environ["HASAT_AUTHENTICATION_ENABLED"] = "true"
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    # Without scripts: whatever can be done can be done by forms.
    context = browser.new_context(java_script_enabled=False, locale="tr-TR")
    page = context.new_page()
    page.goto(f"{hosted.address}/runs?bad=1")
    page.get_by_label("Anahtar").fill("hsk_wrong")
    page.get_by_role("button", name="Giriş yap").click()
    expect(page.get_by_role("alert")).to_contain_text("Giriş yapılamadı")
    browser_errors.of(page)
    page.get_by_label("Anahtar").fill(key)
    page.get_by_role("button", name="Giriş yap").click()
    expect(page).to_have_url(re.compile(r"/runs\?bad=1$"))
    page.get_by_role("button", name="housekeeping işini şimdi çalıştır").click()
    expect(page.locator("#state .mark")).to_have_text("sırada")
    page.get_by_role("button", name="Çıkış yap").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Giriş")
    page.goto(f"{hosted.address}/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Giriş")
    assert browser_errors == []
    context.close()
