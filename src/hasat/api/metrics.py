"""Prometheus metrics of this process, the database, deliveries and quotas."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import psycopg
import structlog
from fastapi import APIRouter, Request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from psycopg.rows import class_row
from starlette.datastructures import State
from starlette.responses import Response

from hasat import __version__
from hasat.api.diagnostics import disk_folders
from hasat.api.health import SingleFlight
from hasat.budget import Quota
from hasat.deliver.outbox import count_deliveries
from hasat.deliver.sink_state import load_sink_states
from hasat.errors import DatabaseError
from hasat.http.routes import (
    declare_responses,
)
from hasat.jobs.recovery import MIN_SKIPS, find_blockages
from hasat.settings import Settings
from hasat.sources.registry import Source, Traffic
from hasat.sources.upstreams import read_all_quotas
from hasat.store import Store
from hasat.store.home import free_bytes
from hasat.store.queries import load_query

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TIMEOUT_SECONDS = 3.0
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

log = structlog.get_logger(__name__)


class HttpMetrics:
    """Requests of this process by declared route, which bounds the number of labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.scrape: SingleFlight[bytes] = SingleFlight()
        ProcessCollector(registry=self.registry)
        Info("hasat", "The running version.", registry=self.registry).info({"version": __version__})
        self._requests = Counter(
            "hasat_http_requests_total",
            "Requests served.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "hasat_http_request_seconds",
            "Time from the request to the end of its response.",
            ("route", "method"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "hasat_rate_limited_total",
            "Requests refused with 429, by what they count as: key, client, guess or address.",
            ("by",),
            registry=self.registry,
        )

    def record_rate_limited(self, by: str) -> None:
        """Count a request that got 429."""
        self._rate_limited.labels(by).inc()

    def record(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        method = method if method in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def traffic(self) -> list[Traffic]:
        """Return the totals of each route."""
        totals: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0])
        for sample in _samples(self._requests):
            if sample.name.endswith("_total"):
                total = totals[sample.labels["route"]]
                total[0] += sample.value
                total[1] += sample.value * (sample.labels["status"] >= "500")
        for sample in _samples(self._seconds):
            if sample.name.endswith("_sum"):
                totals[sample.labels["route"]][2] += sample.value
        return [Traffic(route, int(n), int(bad), s) for route, (n, bad, s) in totals.items()]


def _samples(metric: Counter | Histogram) -> Iterator[Sample]:
    return (sample for family in metric.collect() for sample in family.samples)


@dataclass(frozen=True)
class RunCount:
    """The number of runs of a job in one state, and the end of the newest."""

    job: str
    state: str
    outcome: str | None
    runs: int
    last_finished_at: datetime | None


async def read_run_counts(store: Store) -> list[RunCount] | None:
    """Return the runs by job and outcome; None if the database does not respond in time."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS), store.connection() as conn:
            await conn.execute("SET LOCAL statement_timeout = '2s'")
            async with conn.cursor(row_factory=class_row(RunCount)) as cursor:
                await cursor.execute(load_query("hasat.api", "count_runs"))
                return await cursor.fetchall()
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.runs_unreadable", reason=str(error))
        return None


class RunMetrics(Collector):
    """The runs in the database at the time of the scrape."""

    def __init__(self, counts: list[RunCount] | None) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "hasat_database_up", "1 if the database responded.", float(self._counts is not None)
        )
        if self._counts is not None:
            yield from _families(self._counts)


def _families(counts: list[RunCount]) -> Iterator[Metric]:
    finished = [count for count in counts if count.state == "finished"]
    runs = GaugeMetricFamily(
        "hasat_runs_total", "Finished runs on record.", labels=("job", "outcome")
    )
    last = GaugeMetricFamily(
        "hasat_job_last_finished_timestamp_seconds",
        "When a run of the job last ended, as Unix time.",
        labels=("job",),
    )
    for count in finished:
        runs.add_metric((count.job, count.outcome or "unknown"), count.runs)
    newest: dict[str, float] = {}
    for count in finished:
        if count.last_finished_at is not None:
            at = count.last_finished_at.timestamp()
            newest[count.job] = max(at, newest.get(count.job, at))
    for job, at in newest.items():
        last.add_metric((job,), at)
    yield runs
    yield last
    for name, text, state in (
        ("hasat_jobs_queued", "Runs waiting for a worker.", "queued"),
        ("hasat_jobs_running", "Runs in progress.", "running"),
    ):
        yield GaugeMetricFamily(name, text, sum(c.runs for c in counts if c.state == state))
    yield GaugeMetricFamily(
        "hasat_runs_set_aside",
        "Runs given up after ending their worker repeatedly.",
        sum(count.runs for count in finished if count.outcome == "set_aside"),
    )


async def blockage_metrics(store: Store) -> list[Metric]:
    """Return gauges of blocked jobs; none if the database does not respond in time."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS), store.connection() as conn:
            found = await find_blockages(conn)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.blockages_unreadable", reason=str(error))
        return []
    skipped = GaugeMetricFamily(
        "hasat_job_repeatedly_skipped",
        f"1 for a job whose last {MIN_SKIPS} runs were skipped.",
        labels=("job",),
    )
    for job in found.skipped_jobs:
        skipped.add_metric((job,), 1)
    stuck = GaugeMetricFamily(
        "hasat_stuck_sessions",
        "Database sessions that hold locks and do nothing.",
        len(found.sessions),
    )
    return [skipped, stuck]


def _disk_space(settings: Settings) -> Metric:
    family = GaugeMetricFamily(
        "hasat_disk_free_bytes",
        "Free space on the disks Hasat writes to on this machine.",
        labels=("use",),
    )
    for use, folder in disk_folders(settings).items():
        # A folder that cannot be read has no sample.
        with suppress(OSError):
            family.add_metric((use,), free_bytes(folder))
    return family


async def delivery_metrics(store: Store) -> Iterable[Metric]:
    """Return gauges of the deliveries; none if the database does not respond."""
    counts = GaugeMetricFamily(
        "hasat_deliveries", "Webhook deliveries on record.", labels=("endpoint", "state")
    )
    oldest = GaugeMetricFamily(
        "hasat_delivery_oldest_waiting_seconds",
        "Age of the oldest waiting delivery.",
        labels=("endpoint",),
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            found = await count_deliveries(store)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.deliveries_unreadable", reason=str(error))
        return ()
    for tally in found:
        for state in ("waiting", "delivered", "dead"):
            counts.add_metric((tally.endpoint, state), getattr(tally, state))
        oldest.add_metric((tally.endpoint,), tally.oldest_seconds)
    return counts, oldest


async def sink_metrics(store: Store, settings: Settings) -> Iterable[Metric]:
    """Return the lag of the NATS streams; nothing if the database does not respond."""
    lag = GaugeMetricFamily(
        "hasat_nats_lag_changes", "Changes not published to NATS yet.", labels=("dataset",)
    )
    age = GaugeMetricFamily(
        "hasat_nats_lag_seconds",
        "Age of the oldest change not published to NATS yet.",
        labels=("dataset",),
    )
    failing = GaugeMetricFamily(
        "hasat_nats_failing", "1 if publishing to NATS fails.", labels=("dataset",)
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            states = await load_sink_states(store, settings)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.sinks_unreadable", reason=str(error))
        return ()
    for state in states:
        lag.add_metric((state.dataset,), state.lag)
        age.add_metric((state.dataset,), state.lag_seconds)
        failing.add_metric((state.dataset,), float(state.error is not None))
    return lag, age, failing


async def quotas_for_metrics(store: Store, settings: Settings) -> list[Quota]:
    """Return the budgets; none if the database does not respond."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await read_all_quotas(store, settings)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.quota_unreadable", reason=str(error))
        return []


class QuotaMetrics(Collector):
    """The budgets at the time of the scrape; counters restart each quota day."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[Metric]:
        limit = GaugeMetricFamily(
            "hasat_quota_limit", "Requests that a window allows.", labels=("upstream", "window")
        )
        remaining = GaugeMetricFamily(
            "hasat_quota_remaining",
            "Requests that a window still allows.",
            labels=("upstream", "window"),
        )
        foreign = GaugeMetricFamily(
            "hasat_quota_foreign_use",
            "Requests of today sent with the same key by other programs.",
            labels=("upstream",),
        )
        paused = GaugeMetricFamily(
            "hasat_quota_paused", "1 while an upstream is paused.", labels=("upstream",)
        )
        lanes = {
            name: CounterMetricFamily(f"hasat_quota_{name}", text, labels=("upstream", "lane"))
            for name, text in (
                ("spent", "Requests spent today."),
                ("grants", "Requests granted today."),
                ("waits", "Requests granted today after a wait."),
                ("waited_seconds", "Time that granted requests waited today."),
                ("refusals", "Requests refused today."),
            )
        }
        for quota in self._quotas:
            w = quota.windows
            foreign.add_metric((w.upstream,), w.foreign_use)
            paused.add_metric((w.upstream,), float(w.paused_until is not None))
            for window, most, left in _windows(quota):
                limit.add_metric((w.upstream, window), most)
                remaining.add_metric((w.upstream, window), left)
            for lane in quota.lanes:
                for name, family in lanes.items():
                    family.add_metric((w.upstream, lane.name), getattr(lane, name))
        yield from (limit, remaining, foreign, paused, *lanes.values())


def _windows(quota: Quota) -> Iterator[tuple[str, int, int]]:
    w = quota.windows
    if w.day_limit is not None and w.remaining is not None:
        yield "day", w.day_limit, w.remaining
    if w.minute_limit is not None:
        yield "minute", w.minute_limit, max(0, w.minute_limit - w.last_minute)
    for endpoint in quota.endpoints:
        if endpoint.day_limit is not None:
            left = 0 if endpoint.exhausted_at else max(0, endpoint.day_limit - endpoint.spent)
            yield f"day of {endpoint.name}", endpoint.day_limit, left


class _Families(Collector):
    """Metric families that are already loaded."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _source_metrics(source: Source, store: Store, traffic: list[Traffic]) -> Iterable[Metric]:
    """Return the metrics of a source; none if the database does not respond in time."""
    if source.metrics is None:
        return ()
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await source.metrics(store, traffic)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.source_unreadable", source=source.name, reason=str(error))
        return ()


router = APIRouter(tags=["operation"])
_EXAMPLE = """# HELP hasat_database_up 1 if the database responded.
# TYPE hasat_database_up gauge
hasat_database_up 1.0
"""


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses=declare_responses(_EXAMPLE, media="text/plain"),
)
async def metrics(request: Request) -> Response:
    """Counters of this process, and gauges from the database.

    If the database does not respond, `hasat_database_up` is 0 and its gauges are missing.
    """
    http: HttpMetrics = request.app.state.metrics
    content = await http.scrape(partial(_scrape, request.app.state))
    return Response(content, media_type=CONTENT_TYPE_LATEST)


async def _scrape(state: State) -> bytes:
    http: HttpMetrics = state.metrics
    store: Store = state.store
    registry = CollectorRegistry()
    counts = await read_run_counts(store)
    registry.register(RunMetrics(counts))
    registry.register(_Families([_disk_space(state.settings)]))
    if counts is not None:
        registry.register(_Families(await blockage_metrics(store)))
        registry.register(_Families(await delivery_metrics(store)))
        registry.register(_Families(await sink_metrics(store, state.settings)))
        for source in state.sources:
            registry.register(_Families(await _source_metrics(source, store, http.traffic())))
        quotas = await quotas_for_metrics(store, state.settings)
        registry.register(QuotaMetrics(quotas))
    return generate_latest(http.registry) + generate_latest(registry)
