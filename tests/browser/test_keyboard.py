"""Keys, sorting, questions and phones, in a real browser."""

import pytest
from playwright.sync_api import Browser, expect

from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

# All browser tests share one worker process.
pytestmark = pytest.mark.xdist_group("browser")

PATHS = ("/", "/quota", "/runs", "/delivery", "/keys", "/audit", "/settings", "/search?q=a")
PHONE = {"width": 390, "height": 844}


def test_keys_sorting_and_questions_work_and_no_page_scrolls_sideways_on_a_phone(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    hosted.call("jobs", "run", "housekeeping")
    hosted.call("jobs", "run", "housekeeping")
    hosted.call("jobs", "run", "housekeeping", "--queue")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    page = context.new_page()
    browser_errors.of(page)

    page.goto(f"{hosted.address}/runs")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search everything")).to_be_focused()
    page.keyboard.type("housekeep")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Results for housekeep")
    page.get_by_role("main").get_by_role("link", name="housekeeping").click()
    expect(page.get_by_role("heading", name="Last 2 runs of housekeeping")).to_be_visible()

    numbers = page.locator("#list tbody tr td:first-child a")
    before = numbers.all_inner_texts()
    page.locator("#list").get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#list th[aria-sort=ascending]")).to_have_count(1)
    assert numbers.all_inner_texts() == before[::-1]

    page.goto(f"{hosted.address}/runs/{before[0]}")
    page.get_by_role("button", name="Stop run").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Stop run {before[0]}?")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Stop run").click()
    dialog.get_by_role("button", name="Stop run").click()
    expect(page.get_by_role("main")).to_contain_text("Stopped manually while queued.")

    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", level=1)).to_have_text("Quota")

    page.set_viewport_size(PHONE)
    for path in (
        "/",
        "/quota",
        "/runs",
        "/delivery",
        "/keys",
        "/audit",
        "/settings",
        "/search?q=a",
    ):
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.goto(f"{hosted.address}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    assert browser_errors == []
