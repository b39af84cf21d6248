"""Live updates of open pages by server-sent events.

However many pages are open, the process polls the database once per tick, and renders each
distinct page once for all its readers.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import structlog
from fastapi import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path

from hasat.errors import HasatError, NotFoundError, TooManyRequestsError
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import (
    Caller,
    DatasetNotAllowedError,
    check_dataset_access,
    dumps,
)
from hasat.messages import Language, msg
from hasat.pages import Page, PageRequest
from hasat.store.queries import load_query
from hasat.web.localization import request_language
from hasat.web.rendering import Renderer

TICK_SECONDS = 2.0
# Pause after rendering by a multiple of the time it took, so that jobs come first.
_PAUSE_FACTOR, _MAX_PAUSE_SECONDS = 4.0, 3.0
_REFRESH_SECONDS = 30.0
_HEARTBEAT_SECONDS = 15.0
# A reader reconnects after this time and is authenticated again: a key may have been revoked.
_MAX_STREAM_SECONDS = 300.0
_MAX_PAGES = 500

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class OpenPage:
    """One page that one or more readers have open."""

    page: Page
    request: PageRequest
    language: Language
    readers: int = 0
    parts: str = ""
    event: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, parts: str) -> None:
        """Store a new rendering and wake the readers if it differs."""
        if parts != self.parts:
            self.parts = parts
            self.event = f"data: {dumps(parts)}\n\n".encode()
            self.wake()

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def _tenant(caller: Caller | None) -> str:
    """Return what distinguishes the content of two callers; operators see the same."""
    return "" if caller is None or caller.owned is None else caller.bucket


def check_page_access(page: Page, caller: Caller | None) -> None:
    """Reject a caller whose key may not read what a page shows."""
    if caller is None or caller.datasets is None:
        return
    if page.datasets is None:
        raise DatasetNotAllowedError(msg("{caller!r} may not open this page.", caller=caller.name))
    for dataset in page.datasets:
        check_dataset_access(caller, dataset)


class LivePages:
    """The event streams of this process; it polls only while a page is open."""

    def __init__(self, renderer: Renderer, pages: Sequence[Page], notifier: ChangeNotifier) -> None:
        self._renderer = renderer
        self._patterns: list[tuple[re.Pattern[str], Page]] = [
            (compile_path(page.path)[0], page) for page in pages
        ]
        self._notifier = notifier
        self.open_pages: dict[Any, OpenPage] = {}
        self._poller: asyncio.Task[None] | None = None

    async def respond(self, request: Request) -> Response:
        """Stream the live parts of the page at `at` whenever they change."""
        page_request = PageRequest.from_http(self._renderer.context, request)
        open_page = self.open(
            request.query_params.get("at", ""),
            request_language(request),
            may_operate=page_request.may_operate,
            caller=page_request.caller,
        )
        return StreamingResponse(
            self.events(open_page),
            headers={"X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )

    def open(
        self,
        address: str,
        language: Language,
        *,
        may_operate: bool,
        caller: Caller | None = None,
    ) -> OpenPage:
        """Return the page at an address, shared by all readers of the same content."""
        at = urlsplit(address)
        key = (at.path, at.query, language, may_operate, _tenant(caller))
        if key not in self.open_pages:
            if len(self.open_pages) >= _MAX_PAGES:
                raise TooManyRequestsError(
                    msg("Too many different pages are open."), retry_after=30
                )
            for pattern, page in self._patterns:
                if match := pattern.match(at.path):
                    values = {**dict(parse_qsl(at.query)), **match.groupdict()}
                    check_page_access(page, caller)
                    request = PageRequest(self._renderer.context, values, may_operate, caller)
                    self.open_pages[key] = OpenPage(page, request, language)
                    break
            else:
                raise NotFoundError(msg("There is no page at {path!r}.", path=at.path))
        return self.open_pages[key]

    async def events(self, open_page: OpenPage) -> AsyncGenerator[bytes, None]:
        """Yield the live parts of a page, then again whenever they differ."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _MAX_STREAM_SECONDS
        sent = b""
        open_page.readers += 1
        try:
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll(), name="live pages")
            yield b"retry: 3000\n\n"
            while loop.time() < ends_at and not self._notifier.closed:
                changed = open_page.changed
                if open_page.event != sent:
                    sent = open_page.event
                    yield sent
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        await changed.wait()
                        continue
                yield b": keep-alive\n\n"
        finally:
            open_page.readers -= 1
            if not open_page.readers:
                self.open_pages = {k: v for k, v in self.open_pages.items() if v is not open_page}

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        state, rendered_at = "", 0.0
        while self.open_pages and not self._notifier.closed:
            signal, started = self._notifier.next_signal(), loop.time()
            try:
                current = await self._state()
                everything = current != state or loop.time() - rendered_at > _REFRESH_SECONDS
                if everything:
                    state, rendered_at = current, loop.time()
                await self._render(list(self.open_pages.values()), everything=everything)
            except (HasatError, psycopg.Error) as error:
                log.debug("live_pages.failed", reason=str(error))
            resume_at = loop.time() + min(
                _PAUSE_FACTOR * (loop.time() - started), _MAX_PAUSE_SECONDS
            )
            await self._notifier.wait(signal, TICK_SECONDS)
            await asyncio.sleep(resume_at - loop.time())
        for open_page in self.open_pages.values():
            open_page.wake()

    async def _render(self, open_pages: Sequence[OpenPage], *, everything: bool) -> None:
        """Render one page after the other, so that they use a single connection."""
        loaded: dict[Any, Any] = {}
        for open_page in open_pages:
            if everything or not open_page.parts:
                # The data of a page is the same in all languages.
                request = open_page.request
                key = (
                    open_page.page.path,
                    request.may_operate,
                    _tenant(request.caller),
                    *sorted(request.values.items()),
                )
                try:
                    if key not in loaded:
                        loaded[key] = await open_page.page.load(request)
                    data = loaded[key]
                except HasatError as error:
                    log.debug("live_page.failed", page=open_page.page.name, reason=str(error))
                else:
                    open_page.update(
                        self._renderer.live_parts(open_page.page, request, open_page.language, data)
                    )

    async def _state(self) -> str:
        async with self._renderer.context.store.connection() as conn:
            row = await (await conn.execute(load_query("hasat.web", "live_state"))).fetchone()
        assert row is not None
        return str(row[0])
