"""Prometheus metrics of endpoints."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hasat.fetch.endpoint_store import EndpointReport


class EndpointMetrics(Collector):
    """Prometheus metrics of the endpoints at the time of the scrape."""

    def __init__(self, reports: Sequence[EndpointReport]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        labels = ("upstream", "endpoint")
        counters = {
            "hasat_endpoint_successes": (
                "Definitive responses, including empty ones.",
                "successes",
            ),
            "hasat_endpoint_failures": ("Requests without a usable response.", "failures"),
            "hasat_endpoint_hedges": ("Hedges for slow responses.", "hedges"),
            "hasat_endpoint_hedges_won": ("Hedges that responded first.", "hedges_won"),
            "hasat_endpoint_cancelled": (
                "Requests cancelled because another attempt responded first.",
                "cancelled",
            ),
        }
        for name, (text, field) in counters.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for report in self._reports:
                family.add_metric((report.upstream, report.url), getattr(report, field))
            yield family
        resting = GaugeMetricFamily("hasat_endpoint_resting", "1 during a cooldown.", labels=labels)
        points = GaugeMetricFamily("hasat_endpoint_points", "Points used today.", labels=labels)
        seconds = GaugeMetricFamily(
            "hasat_endpoint_seconds",
            "Response time quantiles in seconds.",
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
