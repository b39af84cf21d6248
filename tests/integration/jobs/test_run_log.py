"""The log lines of a run: stored whatever the log level, without secrets, and gone with the run."""

from collections.abc import Iterator

import pytest
import structlog

from hasat.jobs import Catalogue, Job, Outcome, RunContext, run_in_foreground
from hasat.jobs.run_log import MAX_LINES, list_lines
from hasat.logs import configure_logging
from hasat.settings import Settings
from hasat.store import Store

pytestmark = pytest.mark.anyio

PERSON = "12345678901"


@pytest.fixture(autouse=True)
def logging(settings: Settings) -> Iterator[None]:
    """Log as `hasat demo` does: only errors are printed."""
    before = structlog.get_config()
    quiet = settings.log.model_copy(update={"level": "ERROR"})
    configure_logging(settings.model_copy(update={"log": quiet}))
    yield
    structlog.configure(**before)


async def test_lines_are_stored_with_their_fields_and_masked(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        context.log.info("list.read", users=4000, of=PERSON, odd="a\0b", ratio=float("nan"))
        structlog.get_logger("elsewhere").warning("list.short", missing=3)
        context.log.debug("too much")
        return Outcome(rows_changed=1)

    catalogue = Catalogue.of([Job("sample", work, "Sample.")], settings)
    run = await run_in_foreground(catalogue, store, settings, "sample", {})
    assert run.outcome == "done"
    lines = await list_lines(store, run.id)
    assert [line.event for line in lines] == [
        "run.started",
        "list.read",
        "list.short",
        "run.finished",
    ]
    assert [line.level for line in lines] == ["info", "info", "warning", "info"]
    assert lines[1].fields["users"] == 4000
    assert PERSON not in str(lines)
    assert lines[1].fields["odd"] == "ab"
    assert "run" not in lines[1].fields
    structlog.get_logger().info("after the run")
    assert len(await list_lines(store, run.id)) == 4
    async with store.connection() as conn:
        await conn.execute("DELETE FROM jobs.run WHERE id = %s", [run.id])
    assert await list_lines(store, run.id) == []


async def test_the_number_of_lines_is_limited_but_problems_are_stored(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        for number in range(3 * MAX_LINES):
            context.log.info("step", number=number)
        context.log.error("step.failed")
        return Outcome()

    catalogue = Catalogue.of([Job("sample", work, "Sample.")], settings)
    run = await run_in_foreground(catalogue, store, settings, "sample", {})
    lines = await list_lines(store, run.id)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].event == "step.failed"
