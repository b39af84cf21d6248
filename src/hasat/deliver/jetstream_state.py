"""How far the NATS streams are behind their datasets, and why; readable from any process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query

MAX_LAG_SECONDS = 300.0
"""A stream that lacks a change for longer than this needs attention."""

REMEDY = msg(
    "Free space in NATS, or check that it and a `hasat worker` are running. Publishing is retried "
    "every few seconds; nothing is lost while the feed retains the changes."
)


@dataclass(frozen=True)
class StreamState:
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
        """Return the state as a sentence; the error contains details for operators only."""
        lag = (
            msg("The stream of {dataset} is 1 change behind", dataset=self.dataset)
            if self.lag == 1
            else msg(
                "The stream of {dataset} is {count:,} changes behind",
                dataset=self.dataset,
                count=self.lag,
            )
        )
        if self.lag_seconds >= 1:
            lag = msg("{lag} for {seconds:,.0f} seconds", lag=lag, seconds=self.lag_seconds)
        if self.error is None or self.failing_since is None:
            return msg("{lag}.", lag=lag)
        since = self.failing_since.isoformat("T", "seconds")
        text = msg("{lag}; publishing has failed since {since}", lag=lag, since=since)
        if not with_error:
            return msg("{text}.", text=text)
        return msg("{text}: {error}", text=text, error=self.error)


async def load_stream_states(store: Store, settings: Settings) -> Sequence[StreamState]:
    """Return the state of every dataset's stream; none if no process publishes to NATS.

    That is known from the settings of this process, or because a worker that publishes ran in the
    last ten minutes.
    """
    configured = settings.nats.url is not None
    return await store.rows(
        StreamState, load_query("hasat.deliver", "stream_states"), {"configured": configured}
    )


def describe_degraded(states: Sequence[StreamState], *, with_error: bool = True) -> str | None:
    """Return one sentence for each stream that needs attention; None if none does."""
    degraded = [state.describe(with_error=with_error) for state in states if state.is_degraded]
    return join(degraded) if degraded else None


async def save_sink_seen(store: Store) -> None:
    """Record that a worker that publishes to NATS runs."""
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.deliver", "sink_seen"))
