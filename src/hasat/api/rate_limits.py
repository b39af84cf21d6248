"""Rate limits: token buckets per caller, shared by every server on one database.

A bucket holds a minute's worth of requests and refills evenly. A request takes a token from the
bucket of its process and, while PostgreSQL responds, one from the caller's bucket in the database.
The database grants tokens in blocks, so most requests cost no round trip. With a limit of L a
minute, blocks of B = max(1, L // 20) and P processes, the processes together admit

    at most L + L * t / 60 + P * B requests in any t seconds:

the database grants at most L + L * t / 60 tokens in that time, and no process holds more than B
at its beginning. When PostgreSQL does not respond, each process applies L on its own.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

import psycopg
import structlog

from hasat.errors import DatabaseError
from hasat.http.routes import Allowance
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query

BLOCKS_PER_LIMIT = 20
MAX_WAIT_SECONDS = 1.0
"""How long a request waits for a lease before only the local limit applies."""
LOCAL_SECONDS = 5.0
"""How long only the local limit applies before PostgreSQL is tried again."""
_MIN_REFUSED_SECONDS = 1.0
_MAX_LEASES_AT_ONCE = 2
_DELETE_INTERVAL_SECONDS = 60.0
_MAX_ADDRESS = 64

log = structlog.get_logger(__name__)

Lease = Callable[[str, int, int], Awaitable[tuple[int, float]]]
"""Takes a bucket's name, its limit and the tokens wanted; returns those granted and those left."""


class DatabaseLeases:
    """Leases from `serve.token_bucket`, by the database's clock."""

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._deleted_at = monotonic()

    async def __call__(self, name: str, per_minute: int, wanted: int) -> tuple[int, float]:
        values = {"name": name, "per_minute": per_minute, "wanted": wanted}
        async with self._store.connection() as conn:
            cursor = await conn.execute(load_query("hasat.api", "lease_tokens"), values)
            row = await cursor.fetchone()
            if self._monotonic() - self._deleted_at > _DELETE_INTERVAL_SECONDS:
                self._deleted_at = self._monotonic()
                await conn.execute(load_query("hasat.api", "delete_full_buckets"))
        if row is None:
            raise DatabaseError(msg("PostgreSQL returned no lease."))
        granted, remaining = row
        return granted, remaining


@dataclass(slots=True)
class _Bucket:
    per_minute: int
    tokens: float
    filled_at: float
    leased: int = 0
    left_in_database: float = 0.0
    leased_at: float = float("-inf")
    empty_until: float = float("-inf")
    lease: asyncio.Task[None] | None = None

    def refill(self, per_minute: int, now: float) -> None:
        if per_minute != self.per_minute:
            self.per_minute = per_minute
            self.leased = min(self.leased, block_of(per_minute))
            self.empty_until = float("-inf")
        self.tokens = self._filled(self.tokens, now - self.filled_at)
        self.filled_at = now

    def available(self, now: float, *, shared: bool) -> float:
        if not shared:
            return self.tokens
        elsewhere = self._filled(self.left_in_database, now - self.leased_at)
        return min(self.tokens, self.leased + elsewhere)

    def _filled(self, tokens: float, seconds: float) -> float:
        return min(float(self.per_minute), tokens + seconds * self.per_minute / 60)


class RateLimits:
    """Token buckets by name; without `lease` those of this process only.

    The least recently used bucket is dropped when there are too many, which bounds the memory.
    """

    def __init__(
        self,
        lease: Lease | None = None,
        *,
        max_buckets: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease = lease
        self._max_buckets = max_buckets
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._local_until = float("-inf")
        self._is_local = False
        # A flood of new names must not occupy the connection pool.
        self._slots = asyncio.Semaphore(_MAX_LEASES_AT_ONCE)

    def __len__(self) -> int:
        return len(self._buckets)

    async def draw(self, name: str, per_minute: int) -> Allowance | None:
        """Take a token; `retry_after` is set if there was none. Return None without a limit."""
        if per_minute <= 0:
            return None
        while True:
            now = self._monotonic()
            bucket = self._bucket(name, per_minute, now)
            shared = self._lease is not None and now >= self._local_until
            if bucket.tokens < 1:
                return _refused(bucket, now, (1 - bucket.tokens) * 60 / per_minute, shared=shared)
            if not shared or bucket.leased:
                bucket.tokens -= 1
                bucket.leased = max(0, bucket.leased - 1)
                return _allowance(bucket, now, shared=shared)
            if now < bucket.empty_until:
                return _refused(bucket, now, bucket.empty_until - now, shared=shared)
            await self._wait_for_lease(name, bucket)

    def _bucket(self, name: str, per_minute: int, now: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(per_minute, float(per_minute), now)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
            bucket.refill(per_minute, now)
        return bucket

    async def _wait_for_lease(self, name: str, bucket: _Bucket) -> None:
        if bucket.lease is None:
            bucket.lease = asyncio.create_task(self._take_lease(name, bucket), name="rate limit")
        # Not cancelled at the end: tokens that arrive late still count.
        done, _ = await asyncio.wait({bucket.lease}, timeout=MAX_WAIT_SECONDS)
        if not done:
            self._apply_local(f"PostgreSQL did not respond within {MAX_WAIT_SECONDS:.0f} s")

    async def _take_lease(self, name: str, bucket: _Bucket) -> None:
        assert self._lease is not None
        per_minute = bucket.per_minute
        wanted = block_of(per_minute)
        try:
            async with self._slots:
                granted, left = await self._lease(name, per_minute, wanted)
        except (DatabaseError, psycopg.Error) as error:
            self._apply_local(str(error))
        else:
            now = self._monotonic()
            bucket.leased = min(bucket.leased + granted, block_of(bucket.per_minute))
            bucket.left_in_database, bucket.leased_at = left, now
            if granted < wanted:
                # At least a second, so that a flood costs one round trip a second.
                wait = max(_MIN_REFUSED_SECONDS, (1 - left) * 60 / per_minute)
                bucket.empty_until = now + wait
            if self._is_local and now >= self._local_until:
                self._is_local = False
                log.info("rate_limits.shared")
        finally:
            bucket.lease = None

    def _apply_local(self, reason: str) -> None:
        self._local_until = self._monotonic() + LOCAL_SECONDS
        if not self._is_local:
            self._is_local = True
            log.warning("rate_limits.local", reason=reason)


def block_of(per_minute: int) -> int:
    """Return how many tokens a process leases at once."""
    return max(1, per_minute // BLOCKS_PER_LIMIT)


def _allowance(
    bucket: _Bucket, now: float, *, shared: bool, retry_after: int | None = None
) -> Allowance:
    available = bucket.available(now, shared=shared)
    return Allowance(
        limit=bucket.per_minute,
        remaining=int(available) if retry_after is None else 0,
        reset_seconds=math.ceil((bucket.per_minute - available) * 60 / bucket.per_minute),
        retry_after=retry_after,
    )


def _refused(bucket: _Bucket, now: float, seconds: float, *, shared: bool) -> Allowance:
    return _allowance(bucket, now, shared=shared, retry_after=max(1, math.ceil(seconds)))


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 network of an IPv6 one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:_MAX_ADDRESS]
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return str(parsed)
