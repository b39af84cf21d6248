"""Traces and metrics with OpenTelemetry, configured by its own environment variables.

They are off unless a variable names an exporter or an endpoint and the extra `otel` is installed;
a span then costs one comparison. Spans carry no address, key or body: paths of requests contain
identifiers of people, so a span has the declared path of the route instead.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hasat.errors import SettingsError
from hasat.extras import is_installed
from hasat.messages import msg

Kind = Literal["internal", "server", "client", "consumer"]
Attributes = Mapping[str, str | int | float | bool]

SWITCHES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
"""The variables that turn telemetry on."""

_EXPORTERS = ("otlp", "console", "none")
# The boundaries that the semantic conventions recommend for durations in seconds.
_BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_RUN_BOUNDARIES = (0.1, 1, 5, 15, 60, 300, 900, 3600, 14400)


class Span(Protocol):
    """An operation whose attributes may be completed while it lasts."""

    def set(self, **attributes: str | int | float | bool) -> None: ...

    def rename(self, name: str) -> None: ...

    def fail(self, kind: str) -> None:
        """Mark the operation as failed; the kind of failure names no value."""


@dataclass
class _Span:
    attributes: dict[str, Any]
    inner: Any = None

    def set(self, **attributes: str | int | float | bool) -> None:
        named = {name.replace("__", "."): value for name, value in attributes.items()}
        self.attributes |= named
        self.inner.set_attributes(named)

    def rename(self, name: str) -> None:
        self.inner.update_name(name)

    def fail(self, kind: str) -> None:
        from opentelemetry.trace import StatusCode

        self.set(error__type=kind)
        self.inner.set_status(StatusCode.ERROR)


class _NoSpan:
    def set(self, **attributes: str | int | float | bool) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def fail(self, kind: str) -> None:
        pass


@dataclass
class _Started:
    """The providers of this process."""

    tracer: Any
    providers: tuple[Any, ...]
    histograms: dict[str, Any] = field(default_factory=dict)


_NO_SPAN = _NoSpan()
_started: _Started | None = None


def is_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment turns telemetry on."""
    environ = os.environ if environ is None else environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return any(environ.get(name, "").strip() not in ("", "none") for name in SWITCHES)


@contextmanager
def exporting(role: str, environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Export traces and metrics of this process while the block lasts, if they are wanted."""
    global _started
    environ = os.environ if environ is None else environ
    if _started is not None or not is_wanted(environ) or not is_installed("otel"):
        yield
        return
    _started = _start(role, environ)
    try:
        yield
    finally:
        started, _started = _started, None
        for provider in started.providers:
            provider.shutdown()


@contextmanager
def span(
    name: str,
    kind: Kind = "internal",
    attributes: Attributes | None = None,
    *,
    metric: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Span]:
    """Trace a block; with a metric, also measure its duration with the span's attributes.

    `headers` are those of an incoming request, whose trace the span then belongs to.
    """
    started = _started
    if started is None:
        yield _NO_SPAN
        return
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    began = time.perf_counter()
    parent = None if headers is None else propagate.extract(headers)
    opened = started.tracer.start_as_current_span(
        name,
        context=parent,
        kind=SpanKind[kind.upper()],
        attributes=dict(attributes or {}),
        record_exception=False,
        # Its description would be the message of the error.
        set_status_on_exception=False,
    )
    with opened as inner:
        traced = _Span(dict(attributes or {}), inner)
        try:
            yield traced
        except BaseException as error:
            traced.fail(type(error).__name__)
            raise
        finally:
            if metric is not None and metric in started.histograms:
                seconds = time.perf_counter() - began
                started.histograms[metric].record(seconds, traced.attributes)


def is_exporting() -> bool:
    """Return whether this process exports traces and metrics."""
    return _started is not None


def current_ids() -> tuple[str, str] | None:
    """Return the ids of the current trace and span; None outside of a trace."""
    if _started is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


def _start(role: str, environ: Mapping[str, str]) -> _Started:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        MetricExporter,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SpanExporter,
    )

    from hasat import __version__

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    named = "OTEL_SERVICE_NAME" in environ or "service.name" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    attributes = {"service.version": __version__, "hasat.role": role}
    resource = Resource.create(attributes if named else {**attributes, "service.name": "hasat"})
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans: SpanExporter | None = None
    match _exporter("OTEL_TRACES_EXPORTER", environ):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            spans = OTLPSpanExporter()
        case "console":
            spans = ConsoleSpanExporter()
    if spans is not None:
        traces.add_span_processor(BatchSpanProcessor(spans))
    points: MetricExporter | None = None
    match _exporter("OTEL_METRICS_EXPORTER", environ):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            points = OTLPMetricExporter()
        case "console":
            points = ConsoleMetricExporter()
    readers = [] if points is None else [PeriodicExportingMetricReader(points)]
    metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    meter = metrics.get_meter("hasat", __version__)
    boundaries = {
        "http.server.request.duration": _BOUNDARIES,
        "http.client.request.duration": _BOUNDARIES,
        "hasat.run.duration": _RUN_BOUNDARIES,
    }
    histograms = {
        name: meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=bounds)
        for name, bounds in boundaries.items()
    }
    return _Started(traces.get_tracer("hasat", __version__), (traces, metrics), histograms)


def _exporter(variable: str, environ: Mapping[str, str]) -> str:
    """Return the exporter that a variable names, by default `otlp`."""
    chosen = environ.get(variable, "").strip() or "otlp"
    if chosen not in _EXPORTERS:
        raise SettingsError(
            msg("{variable} is {value!r}.", variable=variable, value=chosen),
            remedy=msg("Choose one of: {names}.", names=", ".join(_EXPORTERS)),
        )
    signal = variable.split("_")[1]
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(name, "").strip()
        if protocol not in ("", "http/protobuf"):
            raise SettingsError(
                msg("{variable} is {value!r}.", variable=name, value=protocol),
                remedy=msg("Hasat exports with http/protobuf; remove the variable."),
            )
    return chosen
