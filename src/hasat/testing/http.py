"""HTTP in tests: a client without a port, and an upstream that enforces request limits."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import httpx2
from fastapi import FastAPI

from hasat.clock import Clock, system_clock

_MINUTE = timedelta(seconds=60)


def app_client(
    app: FastAPI, *, host: str = "127.0.0.1", address: str = "127.0.0.1", **options: Any
) -> httpx2.AsyncClient:
    """Return a client that calls the app in this process, with this Host header and address."""
    transport = httpx2.ASGITransport(app=app, client=(address, 50_000))
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", **options)


def undocumented_operations(app: FastAPI) -> list[str]:
    """List the operations that lack a summary, an example or a problem response in OpenAPI."""
    missing = []
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            responses = operation["responses"]
            good = [response for status, response in responses.items() if status.startswith("2")]
            if not operation.get("summary"):
                missing.append(f"{name} has no summary")
            if "204" not in responses and not any(map(_has_example, good)):
                missing.append(f"{name} has no example response")
            if not any(status.startswith(("4", "5")) for status in responses):
                missing.append(f"{name} declares no problem")
    return missing


def _has_example(response: dict[str, Any]) -> bool:
    return any("example" in c or "examples" in c for c in response.get("content", {}).values())


@dataclass
class MeteredUpstream:
    """An upstream that only counts requests, with the day (in UTC) and minute of a typical API.

    A plain socket server, so that a budget can be driven hard against it.
    """

    day_limit: int
    minute_limit: int
    clock: Clock = system_clock
    latency: float = 0.0
    polite: bool = True
    """Whether the day limit responds with 429 without headers, or with 200 and stale ones."""
    stale: timedelta = timedelta(0)
    """The age of the figures in the headers."""
    silent: int = 0
    """One in this many responses has no headers; 0 for none."""
    queueing: float = 0.0
    """Seconds by which responses are delayed near the minute limit."""
    by_day: Counter[str] = field(default_factory=Counter)
    over_day: int = 0
    over_minute: int = 0
    _minute: deque[datetime] = field(default_factory=deque)
    _sent: deque[tuple[datetime, dict[str, str]]] = field(default_factory=deque)

    def respond(self) -> tuple[int, dict[str, str], object]:
        """Count one request and return status, headers and body."""
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
        self._sent.append((now, headers))
        while len(self._sent) > 1 and now - self._sent[1][0] >= self.stale:
            self._sent.popleft()
        headers = self._sent[0][1]
        if self.silent and self.by_day[day] % self.silent == 0:
            headers = {}
        return 200, headers, _envelope()

    def _delay(self) -> float:
        busy = len(self._minute) > 0.8 * self.minute_limit
        return self.latency + (self.queueing if busy else 0.0)

    @property
    def over_limit(self) -> int:
        return self.over_day + self.over_minute

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Serve on loopback in this process and yield the port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
                status, headers, body = self.respond()
                await asyncio.sleep(self._delay())
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
