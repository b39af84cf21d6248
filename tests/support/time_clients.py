"""Clients of the original's time protocol that follow its rules to the letter and no more."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import httpx2

from support.feed_toys import State

Pause = Callable[[], Awaitable[None]]
Bootstrap = Callable[[], Awaitable[tuple[State, str, int]]]


class TimeClient:
    """Follows `totalPages` of the newest page, then stores the `until` of the last one (K6)."""

    stops_early = False
    repeats_until = False
    until: str | None = None

    def __init__(
        self, http: httpx2.AsyncClient, bootstrap: Bootstrap, pause: Pause, page_size: int
    ) -> None:
        self._http = http
        self._bootstrap = bootstrap
        self._pause = pause
        self._page_size = page_size
        self.state: State = {}
        self.since: str | None = None
        self.seen: set[int] = set()
        """Every number up to the bootstrap's, and of every change received."""

    async def poll(self) -> None:
        """Read all pages once; start over on 410 (K4)."""
        if self.since is None:
            await self._start()
        query: dict[str, Any] = {"since": self.since, "pageSize": self._page_size}
        if self.until is not None:
            query["until"] = self.until
        number, last = 1, 1
        while number <= last:
            answer = await self._http.get("/api/v1/toys/changes", params={**query, "page": number})
            if answer.status_code == 410:
                await self._start()
                return
            assert answer.status_code == 200, answer.text
            page = answer.json()
            self._apply(page["changes"])
            if number == 1 or not self.stops_early:
                last = page["totalPages"]
            if number == 1 and self.repeats_until and page["totalCount"]:
                query["until"] = page["windowEnd"]
            number += 1
            await self._pause()
        self.since = self._stored(page["until"])

    async def _start(self) -> None:
        self.state, self.since, head = await self._bootstrap()
        self.seen = set(range(1, head + 1))

    def _stored(self, until: str) -> str:
        return until

    def _apply(self, changes: list[dict[str, Any]]) -> None:
        for change in changes:
            self.seen.add(change["seq"])
            if change["changeType"] == "removed":
                self.state.pop(change["key"], None)
            else:
                self.state[change["key"]] = change["body"]


class FirstCountClient(TimeClient):
    """Stops at the `totalPages` that the first page stated."""

    stops_early = True


class RepeatingClient(TimeClient):
    """Repeats the `windowEnd` of the first page as `until`."""

    repeats_until = True


class ClockAheadClient(FirstCountClient):
    """Repeats an `until` of its own clock, which is ahead of the server's."""

    until = "2126-01-01T00:00:00"


class WholeSecondsClient(FirstCountClient):
    """Stores times as the original's examples print them: without a fraction."""

    def _stored(self, until: str) -> str:
        return datetime.fromisoformat(until).isoformat(timespec="seconds")


class MillisecondsClient(TimeClient):
    """Stores times as a browser's Date does."""

    def _stored(self, until: str) -> str:
        return datetime.fromisoformat(until).isoformat(timespec="milliseconds")


CLIENTS: tuple[type[TimeClient], ...] = (
    TimeClient,
    FirstCountClient,
    RepeatingClient,
    ClockAheadClient,
    WholeSecondsClient,
    MillisecondsClient,
)
