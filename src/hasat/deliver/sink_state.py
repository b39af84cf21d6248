"""How far the NATS streams are behind their datasets, and why; readable from any process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query

MAX_LAG_SECONDS = 300.0
"""A stream that lacks a change for longer than this needs attention."""

REMEDY = (
    "Make room in NATS, or see whether it and a `hasat worker` run. Publishing is retried every "
    "few seconds; nothing is lost as long as the feed keeps the changes."
)


@dataclass(frozen=True)
class SinkState:
    """The stream of one dataset."""

    dataset: str
    lag: int
    """Changes that are committed and not published."""
    lag_seconds: float
    """Age of the oldest of them; 0 if there is none."""
    error: str | None
    """Why publishing fails, or None if it does not."""
    failing_since: datetime | None

    @property
    def is_degraded(self) -> bool:
        return self.error is not None or self.lag_seconds > MAX_LAG_SECONDS

    def describe(self, *, with_error: bool = True) -> str:
        """Return the state as a sentence; the error names places that concern operators only."""
        changes = "1 change" if self.lag == 1 else f"{self.lag:,} changes"
        text = f"The stream of {self.dataset} is {changes} behind"
        if self.lag_seconds >= 1:
            text += f" for {self.lag_seconds:,.0f} seconds"
        if self.error is None or self.failing_since is None:
            return f"{text}."
        text += f"; publishing has failed since {self.failing_since.isoformat('T', 'seconds')}"
        return f"{text}: {self.error}" if with_error else f"{text}."


async def load_sink_states(store: Store, settings: Settings) -> Sequence[SinkState]:
    """Return the state of every dataset's stream; none if nobody publishes to NATS.

    That is known from the settings of this process, or because a worker that publishes ran in the
    last ten minutes.
    """
    configured = settings.nats.url is not None
    return await store.rows(
        SinkState, load_query("hasat.deliver", "sink_states"), {"configured": configured}
    )


def describe_degraded(states: Sequence[SinkState], *, with_error: bool = True) -> str | None:
    """Return one sentence for each stream that needs attention; None if none does."""
    degraded = (state.describe(with_error=with_error) for state in states if state.is_degraded)
    return " ".join(degraded) or None


async def save_sink_seen(store: Store) -> None:
    """Record that a worker that publishes to NATS runs."""
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.deliver", "sink_seen"))
