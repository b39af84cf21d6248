"""What pages say of a run at work."""

from datetime import UTC, datetime, timedelta

import pytest

from hasat.jobs import Run
from hasat.web.runlines import line_of

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def working(seconds: float, done: float, total: float | None) -> Run:
    began = NOW - timedelta(seconds=seconds)
    return Run(
        id=1,
        job="tkgm_scan",
        params={},
        trigger="hand",
        scheduled_for=None,
        queued_at=began,
        started_at=began,
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
        # A burst at the start is no pace.
        (0.2, 5, 23, None),
        (9.9, 5, 23, None),
        (10, 5, 20, 30),
        (600, 0, 20, None),
        (600, 20, 20, None),
        (600, 20, None, None),
    ],
)
def test_what_is_left_is_told_once_there_is_a_pace_to_go_by(
    seconds: float, done: float, total: float | None, to_go: float | None
) -> None:
    assert line_of(working(seconds, done, total), NOW).seconds_to_go == to_go
