"""Summaries of runs."""

from datetime import UTC, datetime, timedelta

import pytest

from hasat.jobs import Run
from hasat.pages.summaries import summarize_run

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def running(seconds: float, done: float, total: float | None) -> Run:
    started_at = NOW - timedelta(seconds=seconds)
    return Run(
        id=1,
        job="tkgm_scan",
        params={},
        trigger="hand",
        scheduled_for=None,
        queued_at=started_at,
        started_at=started_at,
        finished_at=None,
        state="running",
        outcome=None,
        attempt=1,
        worker=None,
        requests=0,
        rows_changed=0,
        message=None,
        error=None,
        detail={},
        progress={"done": done, "total": total, "note": ""},
    )


@pytest.mark.parametrize(
    ("seconds", "done", "total", "to_go"),
    [
        # The first seconds are too short for a rate.
        (0.2, 5, 23, None),
        (9.9, 5, 23, None),
        (10, 5, 20, 30),
        (600, 0, 20, None),
        (600, 20, 20, None),
        (600, 20, None, None),
    ],
)
def test_the_remaining_time_is_estimated_once_a_rate_is_known(
    seconds: float, done: float, total: float | None, to_go: float | None
) -> None:
    assert summarize_run(running(seconds, done, total), NOW).seconds_to_go == to_go
