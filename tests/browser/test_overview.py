"""The page in a real browser."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from house import House, eventually


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("HASAT_CHROMIUM")
    if not chromium:
        pytest.skip("no Chromium: set HASAT_CHROMIUM, or run scripts/test, which installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [375, 1280])
def test_the_overview_shows_the_house_and_logs_no_error(
    house: House, browser: Browser, width: int
) -> None:
    house.start("serve")
    eventually(house.ready, "it serves")
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    # A stream ends when its page is left.
    page.on("requestfailed", lambda one: None if "/live?" in one.url else errors.append(one.url))
    page.goto(house.address)
    assert page.get_by_role("heading", name="Overview", exact=True).is_visible()
    assert page.get_by_role("heading", name="football", exact=True).is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("link", name="This page as JSON").click()
    expect(page.locator("body")).to_contain_text('"sources"')
    assert errors == []
