"""The delivering loop: runs in every worker; leases see to it that one at a time sends."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import uuid4

import structlog

from hasat.clock import Clock, system_clock
from hasat.deliver import lease, outbox
from hasat.deliver.endpoints import Endpoint, endpoints_of
from hasat.deliver.jetstream import NATS_AWAY, JetStreamSink
from hasat.deliver.lease import LEASE_SECONDS
from hasat.deliver.messages import message_of
from hasat.deliver.post import Answer, post
from hasat.deliver.sink_state import save_sink_seen
from hasat.deliver.watch import (
    Health,
    announce_archive_failures,
    announce_health,
    announce_versions,
)
from hasat.feed.notifier import ChangeNotifier
from hasat.jobs.connection import CONNECTION_ERRORS, backoff, wait_for_event
from hasat.settings import Settings
from hasat.store import Store

FIRST_PAUSE_SECONDS = 5.0
_GROWTH = 3.0
_LONGEST_PAUSE_SECONDS = 3600.0
_HEALTH_SECONDS = 15.0
_RENEW_SECONDS = 5.0
_TIDY_SECONDS = 3600.0
_LOOK_SECONDS = 1.0
_FAREWELL_SECONDS = 3.0

log = structlog.get_logger(__name__)


def pause_after(failed: int, answer: Answer, first: float, dice: random.Random) -> float:
    """Seconds until the next try: three times longer each time, up to an hour, never in step with
    others; an endpoint that asks for more time gets it, up to the same hour."""
    own = min(first * _GROWTH**failed, _LONGEST_PAUSE_SECONDS) * dice.uniform(0.8, 1.2)
    return min(max(own, answer.retry_after or 0.0), max(own, _LONGEST_PAUSE_SECONDS))


class Deliverer:
    """Tells every endpoint what it wants to know, in order; follows the feeds into NATS."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        health: Health | None = None,
        clock: Clock = system_clock,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._endpoints = endpoints_of(settings)
        self._health = health
        self._clock = clock
        self._first_pause = first_pause_seconds
        self._lease_seconds = lease_seconds
        self._dice = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._holder = uuid4()
        self._subscribed = False
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._notifier = ChangeNotifier(store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Delivers while the block lasts; what is being sent at its end has a moment to finish."""
        async with self._notifier.listening():
            tasks = [
                asyncio.create_task(self._repeat(what, step), name=f"deliver: {what}")
                for what, step in self._steps()
            ]
            try:
                yield
            finally:
                self._stopping.set()
                self._news.set()
                self._notifier.close()
                _, unfinished = await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)
                for task in unfinished:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                with suppress(*CONNECTION_ERRORS):
                    await lease.let_go(self._store, self._holder)

    def _steps(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("outbox", self._hand_out),
            ("subscriptions", self._renew),
            ("tidying", self._tidy),
        ]
        if self._health is not None:
            steps.append(("health", self._look_at_health))
        steps += [(one.name, partial(self._tell, one)) for one in self._endpoints]
        if self._settings.nats.url is not None:
            sink = JetStreamSink(
                self._store, self._settings.nats, self._holder, lease_seconds=self._lease_seconds
            )
            steps.append(("nats", partial(self._publish, sink)))
        return steps

    async def _repeat(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """Do it again and again; nothing that goes wrong in one round prevents the next."""
        pauses = backoff()
        while not self._stopping.is_set():
            try:
                await step()
                pauses = backoff()
                continue
            except (*CONNECTION_ERRORS, *NATS_AWAY) as error:
                log.warning("delivering waits", of=what, reason=str(error) or type(error).__name__)
            except Exception:
                log.exception("a round went wrong and is tried again", of=what)
            await wait_for_event(self._stopping, next(pauses))

    async def _hand_out(self) -> None:
        signal = self._notifier.next_signal()
        if not self._subscribed:
            await outbox.subscribe(self._store, self._endpoints)
            self._subscribed = True
        await announce_versions(self._store)
        await announce_archive_failures(self._store)
        if await outbox.hand_out(self._store):
            ringing, self._news = self._news, asyncio.Event()
            ringing.set()
        await self._notifier.wait(signal, _LOOK_SECONDS)

    async def _renew(self) -> None:
        if self._subscribed:
            await outbox.renew(self._store, self._endpoints)
        if self._settings.nats.url is not None:
            await save_sink_seen(self._store)
        await wait_for_event(self._stopping, _RENEW_SECONDS)

    async def _tell(self, endpoint: Endpoint) -> None:
        """Send what waits for the endpoint, one after the other, until nothing is due."""
        news = self._news
        while not (wait := await self._tell_next(endpoint)):
            if self._stopping.is_set():
                return
        await wait_for_event(news, min(wait, _LOOK_SECONDS))

    async def _tell_next(self, endpoint: Endpoint) -> float:
        """Send what is next, if that is due; seconds after which it makes sense to look again."""
        # Longer than a try can take, so that nobody else begins one meanwhile.
        seconds = endpoint.timeout_seconds + self._lease_seconds
        if await outbox.next_delivery(self._store, endpoint.name) is None:
            return _LOOK_SECONDS
        asked_at = time.monotonic()
        if not await lease.hold(self._store, f"webhook {endpoint.name}", self._holder, seconds):
            return _LOOK_SECONDS
        # Looked at again under the lease: another may just have delivered it.
        waiting = await outbox.next_delivery(self._store, endpoint.name)
        if waiting is None:
            return _LOOK_SECONDS
        if time.monotonic() - asked_at > self._lease_seconds:
            # This process was asleep: the lease may end before the try does.
            return 0.0
        webhooks = self._settings.webhooks
        now = self._clock()
        answer = await post(
            endpoint.url,
            message_of(waiting.event, waiting.message_id, waiting.at, endpoint, webhooks, now=now),
            timeout_seconds=endpoint.timeout_seconds,
            private_networks=webhooks.private_networks,
            now=now,
        )
        if answer.error is None:
            assert answer.status is not None
            await outbox.note_delivered(self._store, waiting.id, answer.status)
            return 0.0
        pause = pause_after(waiting.attempts, answer, self._first_pause, self._dice)
        state = await outbox.note_failed(
            self._store,
            waiting.id,
            webhooks,
            error=answer.error,
            status=answer.status,
            pause_seconds=pause,
            final=answer.final,
        )
        log.warning(
            "a message was not delivered",
            endpoint=endpoint.name,
            delivery=waiting.id,
            reason=answer.error,
            then={"dead": "it is a dead letter now"}.get(state or "", "it is tried again"),
        )
        return 0.0 if state == "dead" else pause

    async def _publish(self, sink: JetStreamSink) -> None:
        """Follow the feeds into NATS as long as this process is the one that does."""
        async with sink.connected():
            while not self._stopping.is_set():
                signal = self._notifier.next_signal()
                await sink.round()
                await self._notifier.wait(signal, _LOOK_SECONDS)

    async def _look_at_health(self) -> None:
        assert self._health is not None
        await announce_health(self._store, self._health)
        await wait_for_event(self._stopping, _HEALTH_SECONDS)

    async def _tidy(self) -> None:
        await outbox.tidy(self._store, self._settings.webhooks, self._endpoints)
        await wait_for_event(self._stopping, _TIDY_SECONDS)
