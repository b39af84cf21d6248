"""How often someone may ask: one token bucket per key or address, in this process."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from hasat.doors import Allowance


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Buckets:
    """Token buckets by name; the least recently used one is forgotten when there are too many.

    A bucket holds a minute's worth, so a burst passes and the mean holds. Forgetting one lets its
    owner start anew: it costs a flood of names to get there, and bounds the memory.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        at_most: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_minute = per_minute
        self._at_most = at_most
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def draw(self, name: str) -> Allowance | None:
        """Take a token; `retry_after` says that there was none. None: there is no limit."""
        if self._per_minute <= 0:
            return None
        now = self._monotonic()
        bucket = self._bucket(name, now)
        per_second = self._per_minute / 60
        bucket.tokens = min(
            float(self._per_minute), bucket.tokens + (now - bucket.filled_at) * per_second
        )
        bucket.filled_at = now
        retry_after = None
        if bucket.tokens >= 1:
            bucket.tokens -= 1
        else:
            retry_after = max(1, math.ceil((1 - bucket.tokens) / per_second))
        return Allowance(
            limit=self._per_minute,
            remaining=int(bucket.tokens),
            reset_seconds=math.ceil((self._per_minute - bucket.tokens) / per_second),
            retry_after=retry_after,
        )

    def _bucket(self, name: str, now: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(float(self._per_minute), now)
            if len(self._buckets) > self._at_most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket


def neighbourhood(address: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 network of an IPv6 one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return str(parsed)
