"""Answers that could not be read are kept, for a person to look at."""

from hasat.fetch.outcome import Answer, Outcome, Verdict
from hasat.store import Store
from hasat.store.aside import Aside, keep_aside


async def keep_broken(
    store: Store, upstream: str, run: int | None, origin: str, verdict: Verdict, answer: Answer
) -> None:
    """Keep the answer verbatim if its verdict is `broken`."""
    if verdict.outcome is not Outcome.BROKEN:
        return
    async with store.connection() as conn:
        await keep_aside(conn, upstream, run, [Aside(origin, verdict.reason, answer.body)])
