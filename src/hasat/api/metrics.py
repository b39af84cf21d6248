"""Prometheus metrics of this process, the database, deliveries and quotas."""

import asyncio
import os
import time
from collections import Counter as Counter_
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path

import psycopg
import structlog
from fastapi import APIRouter, Request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from psycopg.rows import class_row
from starlette.datastructures import State
from starlette.responses import Response

from hasat import __version__
from hasat.api.diagnostics import disk_folders
from hasat.api.health import SingleFlight
from hasat.api.usage import total_usage
from hasat.budget import Quota
from hasat.deliver.jetstream_state import load_stream_states
from hasat.deliver.outbox import count_deliveries
from hasat.errors import DatabaseError
from hasat.http.routes import (
    declare_responses,
)
from hasat.jobs import Catalogue
from hasat.jobs.recovery import MIN_SKIPS, find_blockages
from hasat.settings import Settings
from hasat.source import Served, Source, Traffic
from hasat.source.installed import is_active, missing_configuration
from hasat.source.parts import explain
from hasat.store import Store
from hasat.store.home import free_bytes
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TIMEOUT_SECONDS = 3.0
COUNTERS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_DURATIONS = "http_server_request_duration_seconds"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

log = structlog.get_logger(__name__)


class HttpMetrics:
    """Requests by declared route, which bounds the number of labels.

    They are those of this process, or of all processes that share `serve.workers`: each then counts
    in files of a folder that the supervisor has made, and those of a dead one stay in the sums.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.scrape: SingleFlight[bytes] = SingleFlight()
        self._started = time.monotonic()
        self._durations = Histogram(
            "http_server_request_duration_seconds",
            "Time from the request to the end of its response.",
            ("http_route", "http_request_method", "http_response_status_code"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._active = Gauge(
            "http_server_active_requests",
            "Requests being served.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._authentications = Counter(
            "hasat_auth_requests_total",
            "Requests by caller and outcome of the authentication: success, failure or disabled.",
            ("client", "status", "reason"),
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "hasat_rate_limited_total",
            "Requests refused with 429, by what they count as: key, client, guess or address.",
            ("by",),
            registry=self.registry,
        )
        # Finding the child of a metric costs more than counting.
        self._duration_of = cache(self._durations.labels)
        self._authentication_of = cache(self._authentications.labels)

    def record_rate_limited(self, by: str) -> None:
        """Count a request that got 429."""
        self._rate_limited.labels(by).inc()

    def record_authentication(self, client: str, status: str, reason: str = "") -> None:
        """Count a request whose caller was identified, or not."""
        self._authentication_of(client, status, reason).inc()

    def begin(self) -> None:
        """Count a request that is being served, until it is recorded."""
        self._active.inc()

    def record(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self._active.dec()
        method = method if method in _METHODS else "other"
        self._duration_of(route, method, str(status)).observe(seconds)

    def served(self) -> Served:
        """Return the figures that sources show in a form of their own."""
        families = self.collect()
        return Served(
            _traffic(families),
            {
                (labels["client"], labels["status"], labels["reason"]): int(sample.value)
                for family in families
                for sample in family.samples
                if sample.name == "hasat_auth_requests_total" and (labels := sample.labels)
            },
            time.monotonic() - self._started,
        )

    def collect(self) -> list[Metric]:
        """Return what was counted, by all processes where there are several."""
        if (folder := os.environ.get(COUNTERS_FOLDER)) is None:
            return list(self.registry.collect())
        for pid in _pids(folder):
            if not Path(f"/proc/{pid}").exists():
                mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
        merged = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        return list(merged.collect())  # type: ignore[no-untyped-call]

    def families(self) -> list[Metric]:
        """Return all metrics of the server."""
        served = self.served()
        version = InfoMetricFamily("hasat", "The running version.", {"version": __version__})
        uptime = GaugeMetricFamily(
            "hasat_uptime_seconds",
            "Time since this process started.",
            served.uptime_seconds,
        )
        own = [version, uptime, *process_metrics(os.environ.get(COUNTERS_FOLDER))]
        return [*own, *_requests(served.traffic), *self.collect()]


def _traffic(families: Iterable[Metric]) -> list[Traffic]:
    """Return the requests of each route, method and status."""
    found: dict[tuple[str, str, str], Traffic] = {}
    for family in families:
        if family.name != _DURATIONS:
            continue
        for sample in family.samples:
            labels = sample.labels
            key = (
                labels["http_route"],
                labels["http_request_method"],
                labels["http_response_status_code"],
            )
            one = found.setdefault(key, Traffic(key[0], key[1], int(key[2])))
            if sample.name.endswith("_bucket"):
                one.buckets[labels["le"]] = sample.value
            elif sample.name.endswith("_sum"):
                one.seconds = sample.value
            elif sample.name.endswith("_count"):
                one.requests = int(sample.value)
    return list(found.values())


def _requests(traffic: Iterable[Traffic]) -> Iterator[Metric]:
    """Return counts by route, method and status, and durations by route and method."""
    counts = CounterMetricFamily(
        "hasat_http_requests", "Requests served.", labels=("route", "method", "status")
    )
    sums: dict[tuple[str, str], tuple[Counter_[str], list[float]]] = {}
    for one in traffic:
        counts.add_metric((one.route, one.method, str(one.status)), one.requests)
        buckets, seconds = sums.setdefault((one.route, one.method), (Counter_(), []))
        buckets.update(one.buckets)
        seconds.append(one.seconds)
    yield counts
    durations = HistogramMetricFamily(
        "hasat_http_request_seconds",
        "Time from the request to the end of its response.",
        labels=("route", "method"),
    )
    for labels, (buckets, seconds) in sums.items():
        durations.add_metric(labels, list(buckets.items()), sum(seconds))
    yield durations


def _pids(folder: str) -> set[int]:
    """Return the processes that have counted in a folder."""
    names = (path.stem.rpartition("_")[2] for path in Path(folder).glob("*.db"))
    return {int(name) for name in names if name.isdigit()}


def process_metrics(folder: str | None) -> Iterable[Metric]:
    """Return memory, processor time and files of this process, or the sums of those that serve."""
    if folder is None:
        return ProcessCollector(registry=None).collect()
    found: dict[str, Metric] = {}
    for pid in _pids(folder):
        for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            known = found.setdefault(family.name, family)
            if known is family:
                continue
            [one], [other] = known.samples, family.samples
            total = one.value + other.value
            if family.name == "process_start_time_seconds":
                total = min(one.value, other.value)
            known.samples = [one._replace(value=total)]
    return found.values()


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


def _configured_sources(sources: Sequence[Source], settings: Settings) -> Metric:
    family = GaugeMetricFamily(
        "hasat_source_configured",
        "Whether a source is active and has the settings it needs.",
        labels=("source",),
    )
    for source in sources:
        family.add_metric((source.name,), missing_configuration(source, settings) is None)
    return family


def _scheduled_sources(sources: Sequence[Source], catalogue: Catalogue) -> Metric:
    family = GaugeMetricFamily(
        "hasat_source_scheduled",
        "Whether a source has an enabled job with a schedule.",
        labels=("source",),
    )
    scheduled = {job.source for job in catalogue if job.enabled and job.cron}
    for source in sources:
        family.add_metric((source.name,), source.name in scheduled)
    return family


async def dataset_metrics(store: Store, sources: Sequence[str]) -> Iterable[Metric]:
    """Return the size, changes and age of datasets, and holds; none without the database."""
    names = ("source", "dataset")
    records = GaugeMetricFamily("hasat_dataset_records", "Records of a dataset.", labels=names)
    changes = CounterMetricFamily(
        "hasat_dataset_changes", "Changes of a dataset since its first version.", labels=names
    )
    committed = GaugeMetricFamily(
        "hasat_dataset_last_commit_timestamp_seconds",
        "When a run last committed a dataset, changed or not, as Unix time.",
        labels=names,
    )
    holds = GaugeMetricFamily(
        "hasat_holds_waiting", "Held runs that need approval.", labels=("source",)
    )
    values = {"sources": list(sources)}
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS), store.connection() as conn:
            cursor = await conn.execute(load_query("hasat.api", "dataset_totals"), values)
            totals = await cursor.fetchall()
            cursor = await conn.execute(load_query("hasat.api", "waiting_holds"), values)
            waiting = await cursor.fetchall()
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.datasets_unreadable", reason=str(error))
        return ()
    for source, dataset, count, seq, at in totals:
        records.add_metric((source, dataset), count)
        changes.add_metric((source, dataset), seq)
        committed.add_metric((source, dataset), at.timestamp())
    for source, count in waiting:
        holds.add_metric((source,), count)
    return records, changes, committed, holds


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
            states = await load_stream_states(store, settings)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.streams_unreadable", reason=str(error))
        return ()
    for state in states:
        lag.add_metric((state.dataset,), state.lag)
        age.add_metric((state.dataset,), state.lag_seconds)
        failing.add_metric((state.dataset,), float(state.error is not None))
    return lag, age, failing


async def usage_metrics(store: Store) -> Iterable[Metric]:
    """Return what each key used; nothing if the database does not respond."""
    families = {
        name: CounterMetricFamily(f"hasat_key_{metric}", text, labels=("key", "name"))
        for name, metric, text in (
            ("requests", "requests", "Requests of a key or signing client."),
            ("refused", "rate_limited", "Requests of a key that were over its rate limit."),
            ("failed", "failures", "Requests of a key that failed in Hasat."),
            ("bytes", "response_bytes", "Bytes of the responses to a key."),
        )
    }
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            found = await total_usage(store)
    except (DatabaseError, psycopg.Error, TimeoutError) as error:
        log.warning("metrics.usage_unreadable", reason=str(error))
        return ()
    for one in found:
        for name, family in families.items():
            family.add_metric((one.caller, one.name or ""), getattr(one, name))
    return families.values()


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
        early = GaugeMetricFamily(
            "hasat_quota_early_seconds",
            "How long before the end of the day its requests run out at the present pace; else 0.",
            labels=("upstream",),
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
            early.add_metric((w.upstream,), _early_seconds(quota))
            for window, most, left in _windows(quota):
                limit.add_metric((w.upstream, window), most)
                remaining.add_metric((w.upstream, window), left)
            for lane in quota.lanes:
                for name, family in lanes.items():
                    family.add_metric((w.upstream, lane.name), getattr(lane, name))
        yield from (limit, remaining, foreign, paused, early, *lanes.values())


def _early_seconds(quota: Quota) -> float:
    forecast = quota.forecast
    if forecast is None or forecast.kind != "runs_out" or forecast.at is None:
        return 0.0
    return max(0.0, (quota.windows.ends_at - forecast.at).total_seconds())


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


async def _source_metrics(source: Source, store: Store, served: Served) -> Iterable[Metric]:
    """Return the metrics of a source; none if they or the database fail, or take too long."""
    if source.metrics is None:
        return ()
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return [*await source.metrics(store, served)]
    except Exception as error:  # noqa: BLE001 - a package may fail in any way
        log.warning("metrics.source_unreadable", source=source.name, reason=explain(error))
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
    """Counters of this server (all processes of `serve.workers`), and gauges from the database.

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
    configured = _configured_sources(state.sources, state.settings)
    scheduled = _scheduled_sources(state.sources, state.catalogue)
    registry.register(_Families([_disk_space(state.settings), configured, scheduled]))
    if counts is not None:
        active = [one.name for one in state.sources if is_active(one, state.settings)]
        registry.register(_Families(await dataset_metrics(store, active)))
        registry.register(_Families(await blockage_metrics(store)))
        registry.register(_Families(await delivery_metrics(store)))
        registry.register(_Families(await sink_metrics(store, state.settings)))
        registry.register(_Families(await usage_metrics(store)))
        served = http.served()
        for source in state.sources:
            # Figures of a source that is off would set off alerts about their age.
            if not is_active(source, state.settings):
                continue
            registry.register(_Families(await _source_metrics(source, store, served)))
        quotas = await quotas_for_metrics(store, state.settings)
        registry.register(QuotaMetrics(quotas))
    registry.register(_Families(http.families()))
    return generate_latest(registry)
