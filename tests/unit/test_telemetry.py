"""Telemetry: off by default, and what it exports when the variables turn it on."""

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI

from hasat import telemetry
from hasat.api.metrics import HttpMetrics
from hasat.api.middleware import RequestMiddleware, RouteTable
from hasat.errors import NotFoundError, SettingsError
from hasat.fetch import Client, ClientOptions, Request
from hasat.logs import configure_logging
from hasat.settings import load_settings
from hasat.testing.http import app_client

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

PERSON = "12345678901"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Exported:
    """The spans and metrics of a block."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()

    def metrics(self) -> str:
        data = self.reader.get_metrics_data()
        return "" if data is None else data.to_json()

    def everything(self) -> str:
        return str([one.to_json() for one in self.spans.get_finished_spans()]) + self.metrics()


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """Telemetry that is turned on, with exporters in memory."""
    found = Exported()
    monkeypatch.setattr(
        "opentelemetry.sdk.trace.export.BatchSpanProcessor",
        lambda _: SimpleSpanProcessor(found.spans),
    )
    monkeypatch.setattr(
        "opentelemetry.sdk.metrics.export.PeriodicExportingMetricReader", lambda _: found.reader
    )
    with telemetry.exporting("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}):
        yield found
    assert not telemetry.is_exporting()


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "hasat"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_variables_turn_it_on(environ: dict[str, str], wanted: bool) -> None:
    assert telemetry.is_wanted(environ) is wanted
    with telemetry.exporting("test", {} if wanted else environ):
        assert telemetry.current_ids() is None
        with telemetry.span("work") as span:
            span.set(a=1)
            assert telemetry.current_ids() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
)
def test_what_is_not_supported_prevents_the_start(name: str, value: str) -> None:
    environ = {"OTEL_METRICS_EXPORTER": "otlp", name: value}
    with pytest.raises(SettingsError, match=f"{name} is '{value}'"):
        telemetry.exporting("test", environ).__enter__()


@pytest.mark.anyio
async def test_a_request_is_traced_by_its_route_and_not_by_its_path(exported: Exported) -> None:
    app = FastAPI()

    @app.get("/people/{number}")
    async def person(number: str) -> None:
        raise NotFoundError(f"Nobody has the number {number}.")

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("broken")

    app.add_middleware(RequestMiddleware, metrics=HttpMetrics(), routes=RouteTable(app))
    async with app_client(app) as client:
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        response = await client.get(f"/people/{PERSON}?q={PERSON}", headers=headers)
        await client.get("/broken")
    assert response.json()["traceId"] == TRACE
    found, failed = exported.spans.get_finished_spans()
    assert found.name == "GET /people/{number}"
    assert f"{found.context.trace_id:032x}" == TRACE
    assert found.attributes is not None
    assert found.attributes["http.response.status_code"] == 404
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "500"
    assert "http.server.request.duration" in exported.metrics()
    assert PERSON not in exported.everything()


@pytest.mark.anyio
async def test_a_request_to_an_upstream_is_traced_without_its_address(exported: Exported) -> None:
    sent: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, text="{}")

    options = ClientOptions("test")
    async with Client(options, httpx2.MockTransport(respond)) as client:
        await client.send(f"http://upstream.example/{PERSON}", Request("/", timeout=5))
    [found] = exported.spans.get_finished_spans()
    assert dict(found.attributes or {}) == {
        "http.request.method": "GET",
        "server.address": "upstream.example",
        "http.response.status_code": 200,
    }
    assert "traceparent" not in sent[0].headers
    assert PERSON not in exported.everything()


def test_log_lines_have_the_ids_of_their_trace(exported: Exported) -> None:
    stream = StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    try:
        configure_logging(load_settings(environ={"HASAT_LOG_FORMAT": "json"}), stream=stream)
        log = structlog.get_logger("test")
        with telemetry.span("work"):
            ids = telemetry.current_ids()
            log.warning("inside")
        log.warning("outside")
    finally:
        root.handlers[:], root.level = before[:2]
        structlog.configure(**before[2])
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["trace_id"], inside["span_id"]) == ids
    assert "trace_id" not in outside


def test_a_failure_is_an_error_of_the_span(exported: Exported) -> None:
    def work() -> Any:
        with telemetry.span("work", metric="hasat.run.duration") as span:
            span.set(hasat__job="stock")
            raise ValueError(PERSON)

    with pytest.raises(ValueError, match=PERSON):
        work()
    [found] = exported.spans.get_finished_spans()
    assert dict(found.attributes or {}) == {"hasat.job": "stock", "error.type": "ValueError"}
    assert '"hasat.run.duration"' in exported.metrics()
    assert PERSON not in exported.everything()
