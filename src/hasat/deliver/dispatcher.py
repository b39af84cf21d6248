"""The dispatcher: sends deliveries in every worker, one worker at a time per endpoint by lease."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from hasat.clock import Clock, system_clock
from hasat.deliver import outbox
from hasat.deliver.events import (
    Health,
    publish_archive_failures,
    publish_health_changes,
    publish_holds,
    publish_versions,
)
from hasat.deliver.jetstream_state import save_sink_seen
from hasat.deliver.outbox import LEASE_SECONDS, DueDelivery
from hasat.deliver.payloads import build_payload
from hasat.deliver.watchlists.delivery import (
    DueChannel,
    due_channels,
    send_to_channel,
    timeout_of,
)
from hasat.deliver.watchlists.fanout import fan_out
from hasat.deliver.webhook_endpoints import Endpoint, endpoints_of
from hasat.deliver.webhooks import AttemptResult, send
from hasat.errors import UnavailableError
from hasat.feed.dataset import Dataset
from hasat.feed.notifier import ChangeNotifier
from hasat.jobs.connection import CONNECTION_ERRORS, backoff, wait_for_event
from hasat.settings import Settings
from hasat.store import Store

if TYPE_CHECKING:
    from hasat.deliver.jetstream import JetStreamSink

FIRST_PAUSE_SECONDS = 5.0
_GROWTH = 3.0
_MAX_PAUSE_SECONDS = 3600.0
_HEALTH_SECONDS = 15.0
_RENEW_SECONDS = 5.0
_CLEANUP_SECONDS = 3600.0
_POLL_SECONDS = 1.0
_SHUTDOWN_SECONDS = 3.0
_MAX_CHANNELS_AT_ONCE = 16

Attempt = Callable[[DueDelivery], Awaitable[AttemptResult]]
"""Sends a delivery once."""

log = structlog.get_logger(__name__)


def pause_after(failures: int, result: AttemptResult, first: float, jitter: random.Random) -> float:
    """Return the seconds until the next attempt.

    They grow threefold with jitter up to an hour; a longer Retry-After is honoured up to an hour.
    """
    own = min(first * _GROWTH**failures, _MAX_PAUSE_SECONDS) * jitter.uniform(0.8, 1.2)
    return min(max(own, result.retry_after or 0.0), max(own, _MAX_PAUSE_SECONDS))


class Dispatcher:
    """Sends deliveries to endpoints and channels in order, and changes to NATS."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        datasets: Iterable[Dataset] = (),
        health: Health | None = None,
        clock: Clock = system_clock,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._endpoints = endpoints_of(settings)
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._health = health
        self._clock = clock
        self._first_pause = first_pause_seconds
        self._lease_seconds = lease_seconds
        self._jitter = random.Random()  # noqa: S311 - not for security
        self._holder = uuid4()
        self._subscribed = False
        self._stopping = asyncio.Event()
        self._new_deliveries = asyncio.Event()
        self._channels: dict[str, asyncio.Task[None]] = {}
        self._notifier = ChangeNotifier(store)
        self._transient: tuple[type[Exception], ...] = (
            *CONNECTION_ERRORS,
            UnavailableError,
            TimeoutError,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver while the block lasts; requests in progress at its end may finish."""
        async with self._notifier.listening():
            tasks = [
                asyncio.create_task(self._repeat(what, step), name=f"deliver: {what}")
                for what, step in self._steps()
            ]
            try:
                yield
            finally:
                self._stopping.set()
                self._new_deliveries.set()
                self._notifier.close()
                _, unfinished = await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)
                for task in unfinished:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                with suppress(*CONNECTION_ERRORS):
                    await outbox.release_leases(self._store, self._holder)

    def _steps(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("outbox", self._create_deliveries),
            ("watch lists", self._watch),
            ("channels", self._send_to_channels),
            ("subscriptions", self._renew),
            ("cleanup", self._clean_up),
        ]
        if self._health is not None:
            steps.append(("health", self._check_health))
        steps += [(one.name, partial(self._send_due, one)) for one in self._endpoints]
        if self._settings.nats.url is not None:
            # Only with the extra, which brings the library.
            from hasat.deliver.jetstream import NATS_ERRORS, JetStreamSink

            self._transient += NATS_ERRORS
            sink = JetStreamSink(
                self._store, self._settings.nats, self._holder, lease_seconds=self._lease_seconds
            )
            steps.append(("nats", partial(self._publish, sink)))
        return steps

    async def _repeat(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step; a failure in one round does not prevent the next."""
        pauses = backoff()
        while not self._stopping.is_set():
            try:
                await step()
                pauses = backoff()
                continue
            except self._transient as error:
                log.warning("deliver.paused", step=what, reason=str(error) or type(error).__name__)
            except Exception:
                log.exception("deliver.failed", step=what)
            await wait_for_event(self._stopping, next(pauses))

    async def _create_deliveries(self) -> None:
        signal = self._notifier.next_signal()
        if not self._subscribed:
            await outbox.subscribe(self._store, self._endpoints)
            self._subscribed = True
        await publish_versions(self._store)
        await publish_archive_failures(self._store)
        await publish_holds(self._store)
        if await outbox.create_deliveries(self._store):
            self._announce_deliveries()
        await self._notifier.wait(signal, _POLL_SECONDS)

    def _announce_deliveries(self) -> None:
        current, self._new_deliveries = self._new_deliveries, asyncio.Event()
        current.set()

    async def _watch(self) -> None:
        """Create the deliveries of watch lists."""
        signal = self._notifier.next_signal()
        while await fan_out(self._store, self._datasets, self._settings.jobs.timezone):
            self._announce_deliveries()
            if self._stopping.is_set():
                return
        await self._notifier.wait(signal, _POLL_SECONDS)

    async def _renew(self) -> None:
        if self._subscribed:
            await outbox.renew_subscriptions(self._store, self._endpoints)
        if self._settings.nats.url is not None:
            await save_sink_seen(self._store)
        await wait_for_event(self._stopping, _RENEW_SECONDS)

    async def _send_to_channels(self) -> None:
        """Send the due deliveries of watch lists: to some channels at once, to each in order."""
        new_deliveries = self._new_deliveries
        try:
            while not self._stopping.is_set():
                for channel in await due_channels(self._store):
                    if len(self._channels) >= _MAX_CHANNELS_AT_ONCE:
                        break
                    if channel.endpoint not in self._channels:
                        self._start_sending(channel)
                if len(self._channels) < _MAX_CHANNELS_AT_ONCE:
                    await wait_for_event(new_deliveries, _POLL_SECONDS)
                    new_deliveries = self._new_deliveries
                else:
                    await asyncio.wait(self._channels.values(), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            for task in self._channels.values():
                task.cancel()
            raise
        finally:
            await asyncio.gather(*self._channels.values(), return_exceptions=True)

    def _start_sending(self, channel: DueChannel) -> None:
        name, seconds = channel.endpoint, timeout_of(channel.type, self._settings)
        attempt = partial(self._send_to_channel, channel.id)

        async def send_all() -> None:
            try:
                while not await self._send_next(name, seconds, attempt):
                    if self._stopping.is_set():
                        return
            except CONNECTION_ERRORS as error:
                log.warning("deliver.paused", step=name, reason=str(error) or type(error).__name__)
            except Exception:
                log.exception("deliver.failed", step=name)
            finally:
                del self._channels[name]

        self._channels[name] = asyncio.create_task(send_all(), name=f"deliver: {name}")

    async def _send_to_channel(self, channel: int, due: DueDelivery) -> AttemptResult:
        return await send_to_channel(
            self._store, self._settings, self._datasets, channel, due, self._clock()
        )

    async def _send_due(self, endpoint: Endpoint) -> None:
        """Send the due deliveries of an endpoint one after the other."""
        new_deliveries = self._new_deliveries
        attempt = partial(self._send_to_endpoint, endpoint)
        while not (wait := await self._send_next(endpoint.name, endpoint.timeout_seconds, attempt)):
            if self._stopping.is_set():
                return
        await wait_for_event(new_deliveries, min(wait, _POLL_SECONDS))

    async def _send_to_endpoint(self, endpoint: Endpoint, due: DueDelivery) -> AttemptResult:
        webhooks = self._settings.webhooks
        now = self._clock()
        return await send(
            endpoint.url,
            build_payload(due.event, due.message_id, due.at, endpoint, webhooks, now=now),
            timeout_seconds=endpoint.timeout_seconds,
            private_networks=webhooks.private_networks,
            now=now,
        )

    async def _send_next(self, name: str, timeout_seconds: float, attempt: Attempt) -> float:
        """Send the next delivery if it is due; return the seconds until the next check."""
        # Longer than an attempt can take, so that no other process starts one meanwhile.
        seconds = timeout_seconds + self._lease_seconds
        if await outbox.next_delivery(self._store, name) is None:
            return _POLL_SECONDS
        started_at = time.monotonic()
        if not await outbox.hold_lease(self._store, f"webhook {name}", self._holder, seconds):
            return _POLL_SECONDS
        # Read again under the lease: another process may just have delivered it.
        due = await outbox.next_delivery(self._store, name)
        if due is None:
            return _POLL_SECONDS
        if time.monotonic() - started_at > self._lease_seconds:
            # This process was suspended: the lease may end before the attempt does.
            return 0.0
        result = await attempt(due)
        if result.error is None:
            assert result.status is not None
            await outbox.save_success(self._store, due.id, result.status)
            return 0.0
        pause = pause_after(due.attempts, result, self._first_pause, self._jitter)
        state = await outbox.save_failure(
            self._store,
            due.id,
            self._settings.webhooks,
            error=result.error,
            status=result.status,
            pause_seconds=pause,
            final=result.is_final,
        )
        log.warning(
            "delivery.failed", endpoint=name, delivery=due.id, reason=result.error, state=state
        )
        return 0.0 if state == "dead" else pause

    async def _publish(self, sink: "JetStreamSink") -> None:
        """Publish changes to NATS while this process holds the lease."""
        async with sink.connected():
            while not self._stopping.is_set():
                signal = self._notifier.next_signal()
                await sink.publish_pending()
                await self._notifier.wait(signal, _POLL_SECONDS)

    async def _check_health(self) -> None:
        assert self._health is not None
        await publish_health_changes(self._store, self._health)
        await wait_for_event(self._stopping, _HEALTH_SECONDS)

    async def _clean_up(self) -> None:
        await outbox.delete_expired(self._store, self._settings.webhooks, self._endpoints)
        await wait_for_event(self._stopping, _CLEANUP_SECONDS)
