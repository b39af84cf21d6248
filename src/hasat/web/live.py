"""Pages that change while somebody looks: one poller for all of them, one rendering for all alike.

However many pages are open, the database is asked once a tick whether anything changed, and each
distinct page is rendered once for all its readers.
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
from hasat.http.routes import dumps
from hasat.messages import Language, msg
from hasat.store.queries import load_query
from hasat.web.frame import Frame
from hasat.web.page import Asked, Page
from hasat.web.words import language_of

TICK_SECONDS = 2.0
# After a round the pages rest so many times as long as it took: collectors come first.
_REST, _LONGEST_REST_SECONDS = 4.0, 3.0
_ANYWAY_SECONDS = 30.0
_HEARTBEAT_SECONDS = 15.0
# A reader comes again after that, and is looked at again: a key may have been revoked.
_LONGEST_SECONDS = 300.0
_MOST_PAGES = 500

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Shown:
    """One page as some readers see it."""

    page: Page
    asked: Asked
    language: Language
    readers: int = 0
    part: str = ""
    event: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, part: str) -> None:
        """Wake the readers if there is something new for them."""
        if part != self.part:
            self.part = part
            self.event = f"data: {dumps(part)}\n\n".encode()
            self.wake()

    def wake(self) -> None:
        ringing, self.changed = self.changed, asyncio.Event()
        ringing.set()


class Live:
    """The streams of this process; nothing is asked or rendered while nobody looks."""

    def __init__(self, frame: Frame, pages: Sequence[Page], notifier: ChangeNotifier) -> None:
        self._frame = frame
        self._patterns: list[tuple[re.Pattern[str], Page]] = [
            (compile_path(page.path)[0], page) for page in pages
        ]
        self._notifier = notifier
        self.shown: dict[Any, Shown] = {}
        self._poller: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> Response:
        """Server-sent events: the changing part of the page at `at`, whenever it has changed."""
        may_operate = self._frame.asked(request).may_operate
        shown = self.wanted(
            request.query_params.get("at", ""), language_of(request), operates=may_operate
        )
        going = self.events(shown)
        return StreamingResponse(
            going, headers={"X-Accel-Buffering": "no"}, media_type="text/event-stream"
        )

    def wanted(self, address: str, language: Language, *, operates: bool) -> Shown:
        """The page at an address, shared with all who see the same of it."""
        at = urlsplit(address)
        key = (at.path, at.query, language, operates)
        if key not in self.shown:
            if len(self.shown) >= _MOST_PAGES:
                raise TooManyRequestsError(
                    msg("Too many different pages are open."), retry_after=30
                )
            for pattern, page in self._patterns:
                if fits := pattern.match(at.path):
                    values = {**dict(parse_qsl(at.query)), **fits.groupdict()}
                    asked = Asked(self._frame.house, values, operates)
                    self.shown[key] = Shown(page, asked, language)
                    break
            else:
                raise NotFoundError(msg("There is no page at {path!r}.", path=at.path))
        return self.shown[key]

    async def events(self, shown: Shown) -> AsyncGenerator[bytes, None]:
        """The page's changing part, then again whenever it differs."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _LONGEST_SECONDS
        seen = b""
        shown.readers += 1
        try:
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll(), name="live pages")
            yield b"retry: 3000\n\n"
            while loop.time() < ends_at and not self._notifier.closed:
                changed = shown.changed
                if shown.event != seen:
                    seen = shown.event
                    yield seen
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        await changed.wait()
                        continue
                yield b": still here\n\n"
        finally:
            shown.readers -= 1
            if not shown.readers:
                self.shown = {k: v for k, v in self.shown.items() if v is not shown}

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        pulse, rendered_at = "", 0.0
        while self.shown and not self._notifier.closed:
            signal, began = self._notifier.next_signal(), loop.time()
            try:
                now = await self._pulse()
                everything = now != pulse or loop.time() - rendered_at > _ANYWAY_SECONDS
                if everything:
                    pulse, rendered_at = now, loop.time()
                await self._render(list(self.shown.values()), everything=everything)
            except (HasatError, psycopg.Error) as error:
                log.debug("the pages cannot be brought up to date for now", reason=str(error))
            rested_at = loop.time() + min(_REST * (loop.time() - began), _LONGEST_REST_SECONDS)
            await self._notifier.wait(signal, TICK_SECONDS)
            await asyncio.sleep(rested_at - loop.time())
        for shown in self.shown.values():
            shown.wake()

    async def _render(self, wanted: Sequence[Shown], *, everything: bool) -> None:
        """One after the other: readers never take more than one connection from the others."""
        read: dict[Any, Any] = {}
        for shown in wanted:
            if everything or not shown.part:
                # What a page shows is the same in both languages.
                asked = shown.asked
                same = (shown.page.path, asked.may_operate, *sorted(asked.values.items()))
                try:
                    if same not in read:
                        read[same] = await shown.page.data(asked)
                    data = read[same]
                except HasatError as error:
                    log.debug(
                        "a live page cannot be shown", page=shown.page.name, reason=str(error)
                    )
                else:
                    shown.show(self._frame.live_part(shown.page, asked, shown.language, data))

    async def _pulse(self) -> str:
        async with self._frame.house.store.connection() as conn:
            row = await (await conn.execute(load_query("hasat.web", "pulse"))).fetchone()
        assert row is not None
        return str(row[0])
