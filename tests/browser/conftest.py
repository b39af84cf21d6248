"""A real browser."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from support.browser_errors import BrowserErrors


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium; Playwright blocks other event loops of this thread until it is closed."""
    chromium = os.environ.get("HASAT_CHROMIUM")
    if not chromium:
        pytest.skip("no Chromium: set HASAT_CHROMIUM, or run scripts/test, which installs it")
    # Leave time for a loaded machine.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def browser_errors() -> BrowserErrors:
    return BrowserErrors()
