"""Errors in the console of a browser."""

from playwright.sync_api import Page, Request


class BrowserErrors(list[str]):
    """Collects console messages and requests that failed."""

    def of(self, page: Page) -> "BrowserErrors":
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: self.append(f"{page.url}: {error}"))
        page.on("requestfailed", self._failed)
        return self

    def _failed(self, request: Request) -> None:
        # Leaving a page aborts its streams and open requests.
        if request.failure != "net::ERR_ABORTED":
            self.append(f"{request.url}: {request.failure}")
