"""Send HTTP requests over some connections for some seconds, and count the responses.

A process of its own, and cheaper than any server in Python: each connection sends its next prepared
request as soon as it has the whole response. Reads a JSON object on stdin (`port`, `connections`,
`seconds`, `requests`: texts to send as they are) and prints one.
"""

import json
import re
import select
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from statistics import quantiles

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_BLOCK = 1 << 18


@dataclass
class _Connection:
    socket: socket.socket
    received: bytes = b""
    sent_at: float = 0.0


@dataclass
class Load:
    """The responses by status, and what they took."""

    seconds: float = 0.0
    processor_seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)


def is_complete(received: bytes) -> bool:
    """Return whether these bytes are a whole response with a length, or without a body."""
    head = received.find(b"\r\n\r\n")
    if head < 0:
        return False
    if received.startswith(b"HTTP/1.1 304"):
        return True
    found = _LENGTH.search(received, 0, head)
    return found is not None and len(received) >= head + 4 + int(found[1])


def run(port: int, connections: int, seconds: float, requests: list[bytes]) -> Load:
    """Keep one request in flight on each connection."""
    load = Load()
    pending = cycle(requests)
    poll = select.epoll()
    opened: dict[int, _Connection] = {}
    for _ in range(connections):
        made = socket.create_connection(("127.0.0.1", port), timeout=30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        opened[made.fileno()] = _Connection(made)
        poll.register(made.fileno(), select.EPOLLIN)
    started = time.perf_counter()
    processor = time.process_time()
    for one in opened.values():
        one.sent_at = time.perf_counter()
        one.socket.send(next(pending))
    ends = started + seconds
    while (now := time.perf_counter()) < ends:
        for number, _ in poll.poll(1.0):
            one = opened[number]
            data = one.socket.recv(_BLOCK)
            if not data:
                raise SystemExit(f"The server closed a connection after {one.received[:200]!r}.")
            one.received = one.received + data if one.received else data
            if not is_complete(one.received):
                continue
            load.statuses[one.received[9:12].decode()] += 1
            one.received = b""
            now = time.perf_counter()
            load.latencies.append(now - one.sent_at)
            one.sent_at = now
            one.socket.send(next(pending))
    load.seconds = now - started
    load.processor_seconds = time.process_time() - processor
    for one in opened.values():
        one.socket.close()
    return load


def main() -> None:
    wanted = json.load(sys.stdin)
    requests = [text.encode() for text in wanted["requests"]]
    load = run(wanted["port"], wanted["connections"], wanted["seconds"], requests)
    cuts = quantiles(load.latencies, n=100)
    print(
        json.dumps(
            {
                "seconds": load.seconds,
                "processor_seconds": load.processor_seconds,
                "statuses": load.statuses,
                "median_ms": 1000 * cuts[49],
                "p99_ms": 1000 * cuts[98],
            }
        )
    )


if __name__ == "__main__":
    main()
