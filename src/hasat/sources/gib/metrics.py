"""The original service's metrics, for the dashboards that were made for it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.status import ORIGINAL_OUTCOME
from hasat.sources.registry import Traffic
from hasat.store import Store
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PREFIX = "gibuserlist_"
_DOORS = tuple(f"/api/v1/{dataset.name}" for dataset in DATASETS)


async def metrics(store: Store, traffic: Sequence[Traffic]) -> Iterable["Metric"]:
    """Queries of this process; syncs and counts as the database has them."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.gib", "metrics"))
        row = await cursor.fetchone()
    assert row is not None
    return [*_queries(traffic), *_syncs(row)]


def _queries(traffic: Sequence[Traffic]) -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

    ours = [one for one in traffic if one.route.startswith(_DOORS)]
    requests = sum(one.requests for one in ours)
    yield CounterMetricFamily(_PREFIX + "queries", "Queries of taxpayers.", requests)
    yield SummaryMetricFamily(
        _PREFIX + "queries_duration_milliseconds",
        "How long they took.",
        count_value=requests,
        sum_value=sum(one.seconds for one in ours) * 1000,
    )
    failures = sum(one.failures for one in ours)
    yield CounterMetricFamily(_PREFIX + "queries_errors", "Queries that failed.", failures)


def _syncs(row: Mapping[str, Any]) -> Iterator["Metric"]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        SummaryMetricFamily,
    )

    def labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> "Metric":
        family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
        for value, count in values.items():
            family.add_metric((value,), count)
        return family

    statuses: Counter[str] = Counter()
    for outcome, count in row["outcomes"]:
        statuses[ORIGINAL_OUTCOME.get(outcome, "failed")] += int(count)
    yield labelled("sync", "Synchronisations on record.", "status", statuses)
    yield SummaryMetricFamily(
        _PREFIX + "sync_duration_seconds",
        "How long they took.",
        count_value=row["timed"],
        sum_value=row["seconds"],
    )
    users = {"pk": row["pk"], "gb": row["gb"]}
    yield labelled("sync_users_processed", "Users read from the lists.", "list_type", users)
    kinds = {kind: row[kind] for kind in ("added", "modified", "removed")}
    yield labelled("sync_changes", "Changes of taxpayers.", "change_type", kinds)
    yield CounterMetricFamily(
        _PREFIX + "sync_removal_skipped", "Runs that the guard held.", row["held"]
    )
    for name, text, key in (
        ("sync_active", "Synchronisations at work.", "active"),
        ("users_einvoice_count", "e-Fatura taxpayers.", "einvoice"),
        ("users_edespatch_count", "e-İrsaliye taxpayers.", "edespatch"),
        ("sync_last_duration_seconds", "How long the last good one took.", "last_seconds"),
        ("sync_last_sync_at_unix", "When the newest version was committed.", "last_sync_at"),
    ):
        if row[key] is not None:
            yield GaugeMetricFamily(_PREFIX + name, text, row[key])
