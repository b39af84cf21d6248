"""What a browser complains about."""

from playwright.sync_api import Page


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
