"""Taking up what a dead worker left: who is dead, and what becomes of its runs."""

import time
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import structlog

from hasat.jobs.attempt import MOST_ATTEMPTS, STOPPED
from hasat.jobs.fencing import terminate_replaced
from hasat.jobs.link import Connection, Link
from hasat.jobs.queue import PRIVATE, TASK
from hasat.messages import template
from hasat.settings import Settings
from hasat.store.queries import load_query

_SET_ASIDE = template(
    "Set aside: its worker died {attempt} times while running it, last {worker}. Read that "
    "worker's log, then run it by hand (hasat jobs run {job}) or queue it again "
    "(hasat jobs retry {run})."
)
_PROCESS_DIED = template("The process that ran it by hand ({worker}) died.")
_WORKER_DIED = template("Its worker {worker} died during attempt {attempt}; it is begun anew.")
_LOST_PLACE = template("Its place in the queue was lost. Queue it again: hasat jobs retry {run}.")

log = structlog.get_logger(__name__)


class Watch:
    """Judges who has fallen silent.

    A worker is given up only when its last sign of life is old by the database's clock *and* has
    not changed for as long by the observer's own watch: a clock that is turned kills nobody. An
    observer that was itself cut off or held up starts watching anew.
    """

    def __init__(self, stalled_seconds: float) -> None:
        self._stalled = stalled_seconds
        self._seen: dict[int, tuple[datetime, float]] = {}
        self._looked_at = float("-inf")

    def silent(
        self, beats: Mapping[int, datetime], now: datetime, at: float
    ) -> dict[int, datetime]:
        """The workers to give up, with the sign of life they were judged by; `at` is monotonic."""
        if at - self._looked_at > self._stalled / 2:
            self._seen.clear()
        self._looked_at = at
        self._seen = {
            worker: seen if (seen := self._seen.get(worker)) and seen[0] == beat else (beat, at)
            for worker, beat in beats.items()
        }
        old = timedelta(seconds=self._stalled)
        return {
            worker: beat
            for worker, (beat, since) in self._seen.items()
            if at - since >= self._stalled and abs(now - beat) > old
        }


class Recovery:
    """Looks around every few seconds; any number of processes may do so at once."""

    def __init__(self, link: Link, settings: Settings) -> None:
        self._link = link
        self._watch = Watch(settings.jobs.stalled_seconds)
        self._not_in_hand: set[int] = set()

    async def look(
        self, worker_id: int | None = None, in_hand: Collection[int] = frozenset()
    ) -> None:
        """One look: given up are silent workers, and rows this worker holds without knowing it."""
        async with self._link.transaction() as connection:
            await self._give_up_silent(connection)
            if worker_id is not None:
                await self._let_go(connection, worker_id, in_hand)
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_take_up"),
                {
                    "task": TASK,
                    "private": PRIVATE,
                    "attempts": MOST_ATTEMPTS,
                    "stopped": STOPPED,
                    "set_aside": _SET_ASIDE,
                    "process_died": _PROCESS_DIED,
                    "worker_died": _WORKER_DIED,
                },
            )
            taken_up = await cursor.fetchall()
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_close_strays"), {"lost_place": _LOST_PLACE}
            )
            strays = await cursor.fetchall()
        await terminate_replaced(self._link)
        for run, job, fate, attempt, worker in taken_up:
            if fate != "over":
                log.warning(
                    "a run lost its worker", run=run, job=job, fate=fate, attempt=attempt, by=worker
                )
        for (run,) in strays:
            log.warning("a run lost its place in the queue", run=run)

    async def _give_up_silent(self, connection: Connection) -> None:
        cursor = await connection.execute(load_query("hasat.jobs", "queue_beats"))
        rows = await cursor.fetchall()
        now = rows[0][0]
        beats = {worker: beat for _, worker, beat in rows if worker is not None}
        if silent := self._watch.silent(beats, now, time.monotonic()):
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_give_up_workers"),
                {"ids": list(silent), "beats": list(silent.values())},
            )
            for (worker,) in await cursor.fetchall():
                log.warning("a worker fell silent and is given up", worker_id=worker)

    async def _let_go(
        self, connection: Connection, worker_id: int, in_hand: Collection[int]
    ) -> None:
        """PostgreSQL may have handed out a row and gone away before it could say so."""
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_held"), {"worker_id": worker_id}
        )
        unknown = {row for (row,) in await cursor.fetchall()} - set(in_hand)
        # Seen twice: a row that is on its way into our hands is unknown for a moment.
        if forgotten := unknown & self._not_in_hand:
            await connection.execute(
                load_query("hasat.jobs", "queue_let_go"),
                {"ids": sorted(forgotten), "worker_id": worker_id},
            )
        self._not_in_hand = unknown
