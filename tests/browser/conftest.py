"""A real browser, and what it complained about."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


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


class Complaints(list[str]):
    """What the console said and what could not be loaded; both are faults of a page."""

    def of(self, page: Page) -> "Complaints":
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: self.append(f"{page.url}: {error}"))
        # A stream ends when its page is left.
        page.on(
            "requestfailed",
            lambda request: None if "/live?" in request.url else self.append(request.url),
        )
        return self


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()
