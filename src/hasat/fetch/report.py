"""What is known of endpoints, for people and for Prometheus."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hasat.fetch.sketch import LatencySketch
from hasat.store import Store
from hasat.store.queries import load_query

_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class EndpointReport:
    """One endpoint: the counters of the original, its day, its rest and its latencies."""

    upstream: str
    url: str
    successes: int
    failures: int
    hedges: int
    hedges_won: int
    cancelled: int
    points: int
    learned: int | None
    rest_until: datetime | None
    rest_cause: str | None
    upstream_rest_until: datetime | None
    upstream_rest_cause: str | None
    last_outcome: str | None
    last_at: datetime | None
    kinds: list[str]
    sketches: list[bytes]

    def latencies(self) -> dict[str, dict[float, float]]:
        """Seconds by kind of question and quantile."""
        return {
            kind: {
                share: LatencySketch.from_bytes(data).quantile(share) or 0.0 for share in _QUANTILES
            }
            for kind, data in zip(self.kinds, self.sketches, strict=True)
        }


async def read_endpoints(
    store: Store, upstream: str, *, zone: str = "Europe/Istanbul"
) -> list[EndpointReport]:
    """Every endpoint of an upstream, also those that are no longer declared."""
    values = {"upstream": upstream, "zone": zone}
    return await store.rows(EndpointReport, load_query("hasat.fetch", "endpoints"), values)


class EndpointMetrics(Collector):
    """The endpoints at the moment of the scrape."""

    def __init__(self, reports: Sequence[EndpointReport]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        labels = ("upstream", "endpoint")
        counters = {
            "hasat_endpoint_successes": ("Answers, also that there is nothing.", "successes"),
            "hasat_endpoint_failures": ("Requests without a usable answer.", "failures"),
            "hasat_endpoint_hedges": ("Second tries for slow answers.", "hedges"),
            "hasat_endpoint_hedges_won": ("Second tries that answered first.", "hedges_won"),
            "hasat_endpoint_cancelled": ("Requests that lost their race.", "cancelled"),
        }
        for name, (text, field) in counters.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for report in self._reports:
                family.add_metric((report.upstream, report.url), getattr(report, field))
            yield family
        resting = GaugeMetricFamily("hasat_endpoint_resting", "1 while it rests.", labels=labels)
        points = GaugeMetricFamily(
            "hasat_endpoint_points", "Points that were asked today.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "hasat_endpoint_seconds",
            "How long answers take, by share of them.",
            labels=(*labels, "kind", "quantile"),
        )
        for report in self._reports:
            names = (report.upstream, report.url)
            resting.add_metric(names, float(report.rest_until is not None))
            points.add_metric(names, report.points)
            for kind, quantiles in report.latencies().items():
                for share, value in quantiles.items():
                    seconds.add_metric((*names, kind, f"{share:g}"), value)
        yield from (resting, points, seconds)
