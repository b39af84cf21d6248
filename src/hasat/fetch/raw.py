"""Answers that could not be read are kept, for a person to look at."""

from hasat.fetch.outcome import Answer, Outcome, Verdict
from hasat.store import Store
from hasat.store.statements import statement


async def keep_broken(
    store: Store, upstream: str, run: int | None, origin: str, verdict: Verdict, answer: Answer
) -> None:
    """Keep the answer verbatim if its verdict is `broken`."""
    if verdict.outcome is not Outcome.BROKEN:
        return
    values = {
        "source": upstream,
        "run": run,
        "origin": origin,
        "reason": verdict.reason,
        "content": answer.body,
    }
    async with store.connection() as conn:
        await conn.execute(statement("hasat.fetch", "keep_broken"), values)
