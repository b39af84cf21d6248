"""The source's part of /api/v1/status, /health and /metrics, in the original service's form."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import isinf
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from hasat.clock import local_time
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source import Served, Traffic
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.search import load_search_state
from hasat.sources.gib.settings import GibSettings
from hasat.store import Store
from hasat.store.queries import load_query

if TYPE_CHECKING:
    from prometheus_client.core import Metric


ORIGINAL_OUTCOME = {
    "done": "success",
    "nothing": "success",
    "held": "partial",
    "skipped": "partial",
}


async def status(store: Store, settings: Settings) -> Mapping[str, Any]:
    """Return the last syncs, their outcomes and the number of taxpayers."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.gib", "status"))
        row = await cursor.fetchone()
        search = await load_search_state(conn)
    assert row is not None
    last_sync = row["last_sync_at"]
    seconds = row["last_sync_seconds"]
    return {
        "lastSyncAt": local_time(last_sync) if last_sync else None,
        "eInvoiceUserCount": row["einvoice"],
        "eDespatchUserCount": row["edespatch"],
        "lastSyncDuration": None if seconds is None else _duration(float(seconds)),
        "lastSyncStatus": ORIGINAL_OUTCOME.get(row["outcome"], "failed")
        if row["outcome"]
        else None,
        "lastSyncError": row["error"],
        "lastAttemptAt": local_time(row["attempt_at"]) if row["attempt_at"] else None,
        "lastFailureAt": local_time(row["failure_at"]) if row["failure_at"] else None,
        "heldRuns": row["held"],
        "searchReady": not search.unready,
        "remarks": [remark] if (remark := search.remark()) else [],
        "checks": {
            "sync_freshness": _check_freshness(
                row, settings.section(GibSettings).max_sync_staleness_hours
            )
        },
    }


def _check_freshness(row: Mapping[str, Any], stale_hours: int) -> dict[str, Any]:
    if row["last_sync_at"] is None:
        return {"status": "Degraded", "description": msg("The lists have never been synchronised.")}
    if row["hours"] > stale_hours:
        age = msg("The last successful sync was {hours:.0f} hours ago.", hours=row["hours"])
        return {"status": "Degraded", "description": age}
    if row["outcome"] in {"failed", "set_aside"}:
        return {"status": "Degraded", "description": msg("The last sync failed.")}
    return {"status": "Healthy"}


def _duration(seconds: float) -> str:
    """Return a duration as .NET writes a TimeSpan."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:010.7f}"


_PREFIX = "gibuserlist_"
_ROUTES = tuple(f"/api/v1/{dataset.name}" for dataset in DATASETS)
_QUERY_TYPES = ("identifier", "search", "batch")
_SERVER_ERROR = 500
_REFUSED = frozenset({401, 403, 429})
_SYNC_BOUNDS = [5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0]


async def metrics(store: Store, served: Served) -> Iterable["Metric"]:
    """Return the original's metrics: queries of this server, syncs and counts of the database."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.gib", "metrics"), {"bounds": _SYNC_BOUNDS})
        row = await cursor.fetchone()
    assert row is not None
    return [
        *_queries(served.traffic),
        *_callers(served),
        *_syncs(row),
        *_without_counterpart(),
    ]


def _callers(served: Served) -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    requests = CounterMetricFamily(
        _PREFIX + "auth_requests",
        "Requests by caller and outcome of the authentication.",
        labels=("client", "status", "reason"),
    )
    for labels, count in served.authentications.items():
        requests.add_metric(labels, count)
    yield requests
    yield GaugeMetricFamily(
        _PREFIX + "process_uptime_seconds",
        "Time since the server started.",
        served.uptime_seconds,
    )


def _queries(traffic: Sequence[Traffic]) -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    labels = ("type", "document_type")
    counts = CounterMetricFamily(
        _PREFIX + "queries", "Lookups and searches of taxpayers.", labels=labels
    )
    errors = CounterMetricFamily(_PREFIX + "queries_errors", "Queries that failed.", labels=labels)
    durations = HistogramMetricFamily(
        _PREFIX + "queries_duration_milliseconds",
        "Duration of lookups and searches.",
        labels=labels,
    )
    for key in product(_QUERY_TYPES, (dataset.name for dataset in DATASETS)):
        ours = [one for one in traffic if _query_of(one) == key]
        good = [one for one in ours if one.status < _SERVER_ERROR]
        failed = sum(one.requests for one in ours if one.status >= _SERVER_ERROR)
        counts.add_metric(key, sum(one.requests for one in good))
        errors.add_metric(key, failed)
        buckets: Counter[float] = Counter({float("inf"): 0})
        for one in good:
            buckets.update({1000 * float(bound): n for bound, n in one.buckets.items()})
        shown = [
            ("+Inf" if isinf(bound) else f"{bound:g}", n) for bound, n in sorted(buckets.items())
        ]
        durations.add_metric(key, shown, 1000 * sum(one.seconds for one in good))
    yield from (counts, errors, durations)


def _query_of(one: Traffic) -> tuple[str, str] | None:
    """Return the original's labels of a request: the type of the query and the document type."""
    if not one.route.startswith(_ROUTES) or one.status in _REFUSED:
        return None
    _, _, dataset, *rest = one.route.removeprefix("/").split("/")
    kinds = {("GET", ""): "search", ("GET", "{identifier}"): "identifier"}
    kind = "batch" if rest == ["batch"] else kinds.get((one.method, "/".join(rest)))
    return None if kind is None else (kind, dataset)


def _without_counterpart() -> Iterator["Metric"]:
    """Return what the original's board shows of parts that do not exist here: always zero.

    Lookups read the committed tables, so there is no cache and no view to refresh.
    """
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    for name, text in (
        ("cache_hits", "Always zero: there is no cache."),
        ("cache_misses", "Always zero: there is no cache."),
        ("mv_refresh_errors", "Always zero: there is no materialized view."),
    ):
        yield CounterMetricFamily(_PREFIX + name, text, 0)
    yield HistogramMetricFamily(
        _PREFIX + "mv_refresh_duration_seconds",
        "Always empty: there is no materialized view.",
        buckets=[("+Inf", 0)],
        sum_value=0,
    )


def _syncs(row: Mapping[str, Any]) -> Iterator["Metric"]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    def labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> "Metric":
        family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
        for value, count in values.items():
            family.add_metric((value,), count)
        return family

    statuses: Counter[str] = Counter()
    for outcome, count in row["outcomes"]:
        statuses[ORIGINAL_OUTCOME.get(outcome, "failed")] += int(count)
    yield labelled("sync", "Stored syncs by status.", "status", statuses)
    bounds = [f"{bound:g}" for bound in _SYNC_BOUNDS]
    yield HistogramMetricFamily(
        _PREFIX + "sync_duration_seconds",
        "Duration of syncs.",
        buckets=[*zip(bounds, row["within"], strict=True), ("+Inf", row["timed"])],
        sum_value=row["seconds"],
    )
    users = {"pk": row["pk"], "gb": row["gb"]}
    yield labelled("sync_users_processed", "Users read from the lists.", "list_type", users)
    kinds = {kind: row[kind] for kind in ("added", "modified", "removed")}
    yield labelled("sync_changes", "Changes by type.", "change_type", kinds)
    yield CounterMetricFamily(
        _PREFIX + "sync_removal_skipped", "Runs held by the guard.", row["held"]
    )
    for name, text, key in (
        ("sync_active", "Active syncs.", "active"),
        ("users_einvoice_count", "e-Fatura taxpayers.", "einvoice"),
        ("users_edespatch_count", "e-İrsaliye taxpayers.", "edespatch"),
        ("sync_last_duration_seconds", "Duration of the last successful sync.", "last_seconds"),
        ("sync_last_sync_at_unix", "Time of the newest commit.", "last_sync_at"),
    ):
        if row[key] is not None:
            yield GaugeMetricFamily(_PREFIX + name, text, row[key])
