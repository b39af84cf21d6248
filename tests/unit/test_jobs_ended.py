"""A job that is told to stop ends, also where Python loses a cancellation."""

import asyncio

import pytest

from hasat.jobs import attempt
from hasat.jobs.attempt import Ending, ended

pytestmark = pytest.mark.anyio


async def test_a_lost_cancellation_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_TELL_AGAIN_SECONDS", 0.01)
    lost = 0

    async def job() -> Ending:
        nonlocal lost
        while lost < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
        await asyncio.sleep(3600)
        raise AssertionError("nobody stops it")

    task = asyncio.create_task(job())
    await asyncio.sleep(0)
    task.cancel()
    assert await asyncio.wait_for(ended(task), 60) is None
    assert lost == 2


async def test_who_was_not_told_to_stop_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_TELL_AGAIN_SECONDS", 0.001)

    async def job() -> Ending:
        await asyncio.sleep(0.05)
        return Ending("done")

    assert await ended(asyncio.create_task(job())) == Ending("done")
