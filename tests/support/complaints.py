"""What a browser complains about."""

from playwright.sync_api import Page, Request


class Complaints(list[str]):
    """What the console said and what could not be loaded; both are faults of a page."""

    def of(self, page: Page) -> "Complaints":
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: self.append(f"{page.url}: {error}"))
        page.on("requestfailed", self._failed)
        return self

    def _failed(self, request: Request) -> None:
        # Streams, and what else a page still asks for, end when it is left.
        if request.failure != "net::ERR_ABORTED":
            self.append(f"{request.url}: {request.failure}")
