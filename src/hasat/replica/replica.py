"""The replica: load the newest archive, then follow the feed, whatever comes in between.

async with Replica("einvoice", "http://127.0.0.1:8787", "sqlite:///taxpayers.db") as replica:
    await replica.catch_up()               # as new as the server, or an error that says why not
    await replica.verify()                 # every row is what the server holds, or an error
    body = await replica.get("1234567890") # from the local database
    async for report in replica.follow():  # for ever
        ...
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Self, TypeVar

import psycopg

from hasat.clock import Clock, system_clock
from hasat.errors import HasatError, UnavailableError
from hasat.messages import join, msg
from hasat.replica.failures import (
    Backoff,
    DifferentError,
    FailureStreak,
    StartOverError,
    TroubleError,
)
from hasat.replica.intake import BrokenArchiveError, Intake
from hasat.replica.server import Server
from hasat.replica.target import State, Target
from hasat.replica.targets import open_target

T = TypeVar("T")

_WAIT_SECONDS = 30.0
_MAX_PAUSE_SECONDS = 900.0
_CUTS_WITHOUT_PROGRESS = 5


@dataclass(frozen=True)
class Report:
    """The state of the replica and the changes since the last report."""

    dataset: str
    seq: int
    records: int
    digest: str
    changes: int
    loaded: bool
    """Whether it was loaded from an archive."""

    @property
    def new(self) -> bool:
        return self.loaded or self.changes > 0


class Replica:
    """A verified copy of one dataset in your database.

    `report` receives messages about what happens. `patience` is how many seconds failures are
    retried before `catch_up` and `verify` give up; `follow` never does.
    """

    def __init__(
        self,
        dataset: str,
        source: str,
        target: str,
        *,
        key: str | None = None,
        report: Callable[[str], None] = lambda sentence: None,
        patience: float = 120.0,
        pace: Backoff = Backoff(),  # noqa: B008 - frozen
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Clock = system_clock,
    ) -> None:
        self._dataset = dataset
        self._server = Server(source, dataset, key)
        self._open = partial(open_target, target, dataset)
        self._notify = report
        self._patience = patience
        self._pace = pace
        self._sleep = sleep
        self._clock = clock
        # The target belongs to this one thread and is never used concurrently.
        self._hand = ThreadPoolExecutor(1, "replica")
        self._target: Target | None = None
        self._state = State(dataset)
        self._start_over = False
        self._overs = FailureStreak()
        self._changes = 0
        self._loaded = False

    async def __aenter__(self) -> Self:
        try:
            await self._claimed_target()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to server and database."""
        await self._server.close()
        await self._release()
        self._hand.shutdown()

    @property
    def state(self) -> State:
        """Return the state of the replica."""
        return self._state

    async def get(self, key: str) -> Any | None:
        """Return the body of one record, or None; reads the local database only."""
        return await self._do(lambda target: target.get(key))

    async def catch_up(self) -> Report:
        """Catch up with the server."""
        while not await self._with_retries(lambda: self._step(0.0), self._patience):
            pass
        return self._report()

    async def follow(self) -> AsyncIterator[Report]:
        """Follow the server and report after each batch of changes."""
        while True:
            done = await self._with_retries(lambda: self._step(_WAIT_SECONDS), inf)
            if done and (self._loaded or self._changes):
                yield self._report()

    async def verify(self) -> Report:
        """Catch up, then recompute the state digest from every row; a difference is an error."""
        while True:
            cursor, count, digest = await self._with_retries(self._server.digest, self._patience)
            if cursor == self._state.cursor:
                break
            await self._with_retries(lambda: self._step(0.0), self._patience)
        was = self._state
        records, recomputed = await self._do(lambda target: target.recompute())
        if (records, recomputed) != (count, digest):
            now = replace(was, cursor=None)
            self._state = await self._do(lambda target: target.note(was, now))
            raise DifferentError(
                msg(
                    "The replica of {dataset} differs from the server at change {seq}: it "
                    "has {records} records with digest {recomputed}, the server has {count} "
                    "with {digest}.",
                    dataset=self._dataset,
                    seq=was.seq,
                    records=records,
                    recomputed=recomputed,
                    count=count,
                    digest=digest,
                ),
                remedy=msg(
                    "The next start reloads it from an archive. Check that nothing but the "
                    "replica writes to its tables."
                ),
            )
        now = replace(was, verified_at=self._clock())
        self._state = await self._do(lambda target: target.note(was, now))
        return self._report()

    async def _step(self, wait: float) -> bool:
        """Load if needed, then apply one page; return whether the replica is up to date."""
        await self._claimed_target()
        if self._state.cursor is None or self._start_over:
            await self._load()
        was = self._state
        assert was.cursor is not None
        page = await self._server.changes(was.cursor, wait=wait)
        expected = list(range(was.seq + 1, was.seq + 1 + len(page.rows)))
        if [row.seq for row in page.rows] != expected or (not expected and page.next != was.cursor):
            raise StartOverError(
                msg(
                    "The feed of {dataset} has a gap after change {seq}: changes are lost.",
                    dataset=self._dataset,
                    seq=was.seq,
                )
            )
        if page.rows:
            self._state = await self._do(lambda target: target.apply(page.rows, was, page.next))
            self._changes += len(page.rows)
        if page.up_to_date:
            self._overs = FailureStreak()
        return page.up_to_date

    async def _load(self) -> None:
        """Load the newest archive; readers see the old records until it is verified."""
        self._notify(
            msg(
                "Loading {dataset} from the newest archive of {server}.",
                dataset=self._dataset,
                server=self._server.label,
            )
        )
        target = await self._claimed_target()
        was = self._state
        async with self._aside():
            intake = Intake(self._dataset, target.put)
            sha256 = await self._download(intake)
            now = intake.finish(sha256, self._clock())
            await self._do(lambda target: target.replace(was, now))
        self._state = now
        self._start_over = False
        self._loaded = True
        self._notify(
            msg(
                "Loaded {records:,} records of {dataset} as of change {seq:,}.",
                records=now.records,
                dataset=self._dataset,
                seq=now.seq,
            )
        )

    async def _download(self, intake: Intake) -> str:
        """Download the newest archive, resuming after breaks; return its announced SHA-256."""
        etag = sha256 = None
        cuts = 0
        while True:
            received = intake.received
            try:
                async with self._server.archive(etag, received) as part:
                    if etag is None or sha256 is None:
                        # Do not load an archive whose cursor the feed no longer accepts.
                        await self._server.changes(part.cursor)
                        etag, sha256 = part.etag, part.sha256
                    elif not part.continues:
                        raise BrokenArchiveError(
                            msg(
                                "The archive of {dataset} was replaced while it was loaded.",
                                dataset=self._dataset,
                            )
                        )
                    async for chunk in part.chunks():
                        await self._do(partial(_feed, intake, chunk))
                return sha256
            except BrokenArchiveError:
                raise
            except TroubleError as error:
                cuts = 1 if intake.received > received else cuts + 1
                if etag is None or cuts > _CUTS_WITHOUT_PROGRESS:
                    raise
                await self._wait(error, self._pace.pause(cuts))

    async def _with_retries(self, action: Callable[[], Awaitable[T]], patience: float) -> T:
        """Run an action, retrying failures that are temporary or cured by starting over."""
        passing = FailureStreak()
        while True:
            try:
                return await action()
            except StartOverError as error:
                self._start_over = True
                # At first the download may be at fault; later a newer archive is needed.
                pause = self._overs.next_pause(self._pace, first_is_free=True)
                if self._overs.waited > patience:
                    raise
                await self._wait(error, pause)
            except UnavailableError as error:
                requested = error.retry_after if isinstance(error, TroubleError) else 0.0
                pause = passing.next_pause(self._pace, at_least=min(requested, _MAX_PAUSE_SECONDS))
                if passing.waited > patience:
                    raise
                await self._wait(error, pause)

    async def _wait(self, error: HasatError, pause: float) -> None:
        retry = msg("Trying again in {pause:.0f} s.", pause=pause)
        self._notify(join([error.message, retry]) if pause else error.message)
        await self._sleep(pause)

    def _report(self) -> Report:
        state = self._state
        report = Report(
            state.dataset, state.seq, state.records, state.digest, self._changes, self._loaded
        )
        self._changes, self._loaded = 0, False
        return report

    async def _claimed_target(self) -> Target:
        """Return the claimed target, reopened if it was lost."""
        if self._target is None:
            loop = asyncio.get_running_loop()
            self._target = await loop.run_in_executor(self._hand, self._open)
            self._state = await self._do(lambda target: target.claim())
        return self._target

    async def _do(self, work: Callable[[Target], T]) -> T:
        """Run a function on the target in its thread."""
        target = await self._claimed_target()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._hand, work, target)
        except (sqlite3.OperationalError, psycopg.OperationalError) as error:
            await self._release()
            raise TroubleError(
                msg("{target} cannot be used now: {error}.", target=target.label, error=error)
            ) from error
        except (sqlite3.Error, psycopg.Error) as error:
            raise HasatError(
                msg(
                    "{target} refused what the replica wanted to do: {error}.",
                    target=target.label,
                    error=error,
                ),
                remedy=msg(
                    "Check that it may create its tables there and that they were not changed."
                ),
            ) from error

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[None]:
        """Enter and leave the target's staging block in its thread."""
        used = await self._claimed_target()
        block = used.aside()

        async def leave(*problem: Any) -> None:
            # A lost target has discarded its staging already.
            if self._target is used:
                await self._do(lambda target: block.__exit__(*problem))

        async with AsyncExitStack() as stack:
            await self._do(lambda target: block.__enter__())
            stack.push_async_exit(leave)
            yield

    async def _release(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            await asyncio.get_running_loop().run_in_executor(self._hand, target.close)


def _feed(intake: Intake, chunk: bytes, target: Target) -> None:
    """Parse a piece of an archive, in the target's thread."""
    intake.feed(chunk)


class BlockingReplica:
    """A `Replica` with blocking methods; takes the same arguments."""

    def __init__(self, dataset: str, source: str, target: str, **options: Any) -> None:
        self._replica = Replica(dataset, source, target, **options)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.run(self._replica.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._replica.close())
        self._runner.close()

    @property
    def state(self) -> State:
        """Return the state of the replica."""
        return self._replica.state

    def get(self, key: str) -> Any | None:
        """Return the body of one record, or None; reads the local database only."""
        return self._runner.run(self._replica.get(key))

    def catch_up(self) -> Report:
        """Catch up with the server."""
        return self._runner.run(self._replica.catch_up())

    def verify(self) -> Report:
        """Catch up, then recompute the state digest from every row; a difference is an error."""
        return self._runner.run(self._replica.verify())

    def follow(self) -> Iterator[Report]:
        """Follow the server and report after each batch of changes."""
        reports = self._replica.follow()

        async def following() -> Report:
            return await anext(reports)

        while True:
            yield self._runner.run(following())
