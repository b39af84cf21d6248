"""An upstream that only counts: a day and a minute as API-Football has them, enforced to the one.

Small and quick rather than a framework's app, so that a budget can be driven hard against it.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hasat.clock import Clock, system_clock

_MINUTE = timedelta(seconds=60)


@dataclass
class Metered:
    """What it allows, and what it has counted. Its day turns at midnight UTC."""

    day_limit: int
    minute_limit: int
    clock: Clock = system_clock
    latency: float = 0.0
    polite: bool = True
    """Whether a spent day is answered by 429 without headers, or by 200 with stale ones."""
    stale: timedelta = timedelta(0)
    """Headers say what was left so long ago."""
    silent: int = 0
    """Every so many answers, one is without headers."""
    queueing: float = 0.0
    """So many seconds an answer is held back by a server that is nearly asked too much."""
    by_day: Counter[str] = field(default_factory=Counter)
    over_day: int = 0
    over_minute: int = 0
    _minute: deque[datetime] = field(default_factory=deque)
    _said: deque[tuple[datetime, dict[str, str]]] = field(default_factory=deque)

    def answer(self) -> tuple[int, dict[str, str], object]:
        """Count one request and judge it: status, headers, body."""
        now = self.clock()
        day = now.date().isoformat()
        self.by_day[day] += 1
        while self._minute and now - self._minute[0] >= _MINUTE:
            self._minute.popleft()
        self._minute.append(now)
        day_left = self.day_limit - self.by_day[day]
        minute_left = self.minute_limit - len(self._minute)
        headers = {
            "x-ratelimit-requests-limit": str(self.day_limit),
            "x-ratelimit-requests-remaining": str(max(0, day_left)),
            "x-ratelimit-limit": str(self.minute_limit),
            "x-ratelimit-remaining": str(max(0, minute_left)),
        }
        if day_left < 0:
            self.over_day += 1
            text = "You have reached the request limit for the day."
            if self.polite:
                return 429, {}, _envelope(rateLimit=text)
            stale = headers | {"x-ratelimit-requests-remaining": str(self.day_limit - 1)}
            return 200, stale, _envelope(requests=text)
        if minute_left < 0:
            self.over_minute += 1
            text = f"Too many requests. Your rate limit is {self.minute_limit} requests per minute."
            return 429, {}, _envelope(rateLimit=text)
        self._said.append((now, headers))
        while len(self._said) > 1 and now - self._said[1][0] >= self.stale:
            self._said.popleft()
        headers = self._said[0][1]
        if self.silent and self.by_day[day] % self.silent == 0:
            headers = {}
        return 200, headers, _envelope()

    def _held_back(self) -> float:
        busy = len(self._minute) > 0.8 * self.minute_limit
        return self.latency + (self.queueing if busy else 0.0)

    @property
    def over_limit(self) -> int:
        return self.over_day + self.over_minute

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Serve on loopback inside this process; gives the port."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
                status, headers, body = self.answer()
                await asyncio.sleep(self._held_back())
                content = json.dumps(body).encode()
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _envelope(**errors: str) -> dict[str, object]:
    return {
        "get": "metered",
        "parameters": [],
        "errors": errors or [],
        "results": 0,
        "paging": {"current": 1, "total": 1},
        "response": [],
    }
