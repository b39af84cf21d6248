"""The dashboard in a real browser, as an operator uses it."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

# All browser tests share one worker process.
pytestmark = pytest.mark.xdist_group("browser")

TITLES = {
    "en": [
        "Overview",
        "Quota",
        "Runs and jobs",
        "Changes",
        "Check",
        "Taxpayers",
        "Football",
        "Delivery",
    ],
    "tr": [
        "Genel bakış",
        "Kota",
        "Çalıştırmalar ve görevler",
        "Değişiklikler",
        "Denetim",
        "Mükellefler",
        "Futbol",
    ],
}
# Simulates switching to another tab.
HIDE = """() => {
  Object.defineProperty(document, "hidden", { get: () => true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_every_page_works_in_both_languages_check_keyboard_and_on_a_phone(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    """Also start a run and follow it on two pages."""
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
    expect(page.get_by_role("link", name="Tanılama")).to_be_in_viewport(ratio=1)
    _check_keyboard(page, hosted)
    page.set_viewport_size({"width": 375, "height": 800})
    for path in (
        "/",
        "/runs",
        "/quota",
        "/changes",
        "/check",
        "/taxpayers",
        "/football",
        "/doctor",
    ):
        page.goto(hosted.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
    page.goto(f"{hosted.address}/football")
    expect(page.get_by_role("columnheader", name="Injuries")).to_be_in_viewport(ratio=0.9)
    _check_run(page, hosted)
    assert browser_errors == []
    context.close()


def _check_keyboard(page: Page, installation: Installation) -> None:
    """The first key press offers to skip the navigation; focus is visible."""
    page.goto(f"{installation.address}/runs?lang=en")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def _check_run(page: Page, installation: Installation) -> None:
    """A run started by a button is updated on its page and on a page opened before."""
    watching = page.context.new_page()
    watching.goto(f"{installation.address}/runs?job=housekeeping")
    expect(watching.locator("#list").get_by_text("No results")).to_be_visible()
    page.goto(f"{installation.address}/runs")
    page.get_by_role("button", name="Run housekeeping now").click()
    expect(page).to_have_url(re.compile(r"/runs/1$"))
    expect(page.locator("#state .mark")).to_have_text("Queued")
    watching.bring_to_front()
    expect(watching.locator("#list").get_by_role("link", name="1", exact=True)).to_be_visible()
    worker = installation.start("worker")
    page.bring_to_front()
    expect(page.locator("#state").get_by_text(re.compile("^(Done|No changes)$"))).to_be_visible()
    worker.terminate()
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{installation.address}/runs")
    expect(page.locator("#timeline").get_by_text("housekeeping").first).to_be_in_viewport(ratio=1)
    page.goto(f"{installation.address}/runs/1?lang=tr")
    expect(page.get_by_role("button", name="Aynı parametrelerle yeniden çalıştır")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_a_stream_the_page_polls_and_rarely_while_hidden(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    browser_errors.of(page)
    requests: list[str] = []
    page.on(
        "request", lambda one: requests.append(one.url) if one.resource_type == "fetch" else None
    )
    # Like a proxy that buffers responses.
    page.route(lambda url: "/live?at=" in url, lambda route: None)
    page.clock.install()
    page.goto(f"{hosted.address}/runs?job=housekeeping")
    expect(page.locator("#list").get_by_text("No results")).to_be_visible()
    hosted.call("jobs", "run", "housekeeping")
    page.clock.run_for(20_000)
    expect(page.locator("#list").get_by_role("link", name="1", exact=True)).to_be_visible()
    page.evaluate(HIDE)
    requests.clear()
    page.clock.run_for(50_000)
    assert requests == []
    # Events arrive only while Playwright waits.
    with page.expect_request(lambda one: one.resource_type == "fetch"):
        page.clock.run_for(20_000)
    assert len(requests) == 1
    assert browser_errors == []
    context.close()


def test_a_key_logs_in_without_scripts(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    key = hosted.json("keys", "create", "ops", "--scope", "operate")["key"]
    hosted.environ["HASAT_AUTHENTICATION_ENABLED"] = "true"
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    # Without scripts, forms must do everything.
    context = browser.new_context(java_script_enabled=False, locale="tr-TR")
    page = context.new_page()
    page.goto(f"{hosted.address}/runs?bad=1")
    page.get_by_label("API anahtarı").fill("hsk_wrong")
    page.get_by_role("button", name="Giriş yap").click()
    expect(page.get_by_role("alert")).to_contain_text("Giriş başarısız")
    browser_errors.of(page)
    page.get_by_label("API anahtarı").fill(key)
    page.get_by_role("button", name="Giriş yap").click()
    expect(page).to_have_url(re.compile(r"/runs\?bad=1$"))
    page.get_by_role("button", name="housekeeping görevini şimdi çalıştır").click()
    expect(page.locator("#state .mark")).to_have_text("Kuyrukta")
    page.get_by_role("button", name="Çıkış yap").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Giriş yap")
    page.goto(f"{hosted.address}/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Giriş yap")
    assert browser_errors == []
    context.close()
