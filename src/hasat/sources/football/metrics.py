"""Figures of the mirror for Prometheus."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hasat.sources.registry import Traffic
from hasat.store import Store
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from prometheus_client.core import Metric


async def metrics(store: Store, _: Sequence[Traffic]) -> Iterable["Metric"]:
    """Matches by what became of them, what is inferred, and when the API last told."""
    from prometheus_client.core import GaugeMetricFamily

    async with store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.sources.football", "metrics"))
        rows = await cursor.fetchall()
    fixtures = GaugeMetricFamily(
        "hasat_football_fixtures", "Matches in the mirror.", labels=("state",)
    )
    plain = []
    for name, label, value in rows:
        if name == "fixtures":
            fixtures.add_metric((label,), value)
        elif value is not None:
            plain.append(GaugeMetricFamily(f"hasat_football_{name}", _TEXTS[name], value))
    return [fixtures, *plain]


_TEXTS = {
    "inferred_fixtures": "Matches that are inferred to be over.",
    "set_aside": "Parts of answers that could not be read.",
    "last_told_timestamp_seconds": "When the API last told of a match, as unix time.",
}
