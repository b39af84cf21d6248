"""A process that sends as many requests as the budget allows: python budget_hammer.py JSON."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hasat.budget import Budget, Lane, Remaining, Upstream
from hasat.errors import OutOfQuotaError
from hasat.settings import load_settings
from hasat.store import open_store


@dataclass
class HttpConnection:
    """One kept-alive HTTP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, port: int) -> "HttpConnection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self) -> tuple[int, dict[str, str], Any]:
        self.writer.write(b"GET / HTTP/1.1\r\nhost: metered\r\n\r\n")
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = json.loads(await self.reader.readexactly(int(headers["content-length"])))
        return int(head[0].split()[1]), headers, body


def classify(status: int, headers: dict[str, str], body: Any) -> tuple[str, Remaining]:
    """Classify a response as the fetch package would."""
    error = " ".join(body["errors"].values()) if body["errors"] else ""
    left = headers.get("x-ratelimit-requests-remaining")
    minute = headers.get("x-ratelimit-remaining")
    remaining = Remaining(
        day=int(left) if left else None,
        minute=int(minute) if minute else None,
    )
    if " day" in error:
        return "day_exhausted", remaining
    return ("minute_limited" if error else "ok"), remaining


async def hammer(options: dict[str, Any]) -> dict[str, Any]:
    upstream = Upstream(
        "metered",
        day_limit=options["day_limit"],
        minute_limit=options["minute_limit"],
        opening_seconds=0,
        lanes=(Lane("all", early=True),),
    )
    settings = load_settings(
        environ={"HASAT_HOME": options["home"], "HASAT_DATABASE_URL": options["url"]}
    )
    sent = 0
    async with open_store(settings) as store, Budget(store, upstream) as budget:
        Path(options["ready"]).touch()

        async def one() -> None:
            nonlocal sent
            connection = await HttpConnection.to(options["port"])
            while True:
                try:
                    grant = await budget.acquire("all", job="hammer", timeout=3600)
                except OutOfQuotaError:
                    return
                began = time.perf_counter()
                sent += 1
                outcome, remaining = classify(*await connection.get())
                await grant.settle(outcome, remaining, time.perf_counter() - began)

        await asyncio.gather(*(one() for _ in range(options["at_once"])))
    return {"sent": sent}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if skew := given.get("skew"):
        real = time.time
        time.time = lambda: real() + skew
    print(json.dumps(asyncio.run(hammer(given))))
