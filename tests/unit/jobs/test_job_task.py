"""A stopped job ends, also where Python loses a cancellation; no other job does."""

import asyncio

import pytest

from hasat.jobs import attempt
from hasat.jobs.attempt import STOPPED, AttemptResult, JobTask

pytestmark = pytest.mark.anyio


async def test_a_lost_cancellation_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_CANCEL_AGAIN_SECONDS", 0.01)
    lost = 0

    async def job() -> AttemptResult:
        nonlocal lost
        while lost < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
        await asyncio.sleep(3600)
        raise AssertionError("it was not stopped")

    work = JobTask(job())
    await asyncio.sleep(0)
    assert work.stop("manual")
    assert not work.stop("shutdown")
    interrupted = AttemptResult("interrupted", message=STOPPED)
    assert await asyncio.wait_for(work.ended(), 60) == interrupted
    assert (lost, work.stopped) == (2, "manual")


async def test_a_job_that_was_not_stopped_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a time-out of its own, or a group of its tasks, has it cancelled for a while."""
    monkeypatch.setattr(attempt, "_CANCEL_AGAIN_SECONDS", 0.001)

    async def tidies_up() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)

    async def fails() -> None:
        raise ValueError

    async def job() -> AttemptResult:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await tidies_up()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(tidies_up())
                group.create_task(fails())
        return AttemptResult("done")

    work = JobTask(job())
    assert await work.ended() == AttemptResult("done")
    assert not work.stop("shutdown")
    assert work.stopped is None
