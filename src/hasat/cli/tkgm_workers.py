"""`hasat tkgm workers`: how each endpoint of the pool has done."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hasat.cli import manners
from hasat.cli.house import in_house

if TYPE_CHECKING:
    from hasat.fetch import EndpointReport


def workers(ctx: typer.Context, json: manners.JsonFlag = False) -> None:
    """How each endpoint has done: answers, failures, second tries, latencies, and whether it rests.

    What is left of each one's day is in `hasat quota tkgm`. Examples: `hasat tkgm workers` ·
    `hasat tkgm workers --json`
    """
    from hasat.fetch import read_endpoints

    settings = manners.settings_of(ctx)

    reports = in_house(settings, lambda store: read_endpoints(store, "tkgm"))
    documents = [_document(report) for report in reports]
    manners.emit(documents, json=json, human=lambda: _told(reports))


def _document(report: "EndpointReport") -> dict[str, Any]:
    return {
        "url": report.url,
        "successes": report.successes,
        "failures": report.failures,
        "hedges": report.hedges,
        "hedgesWon": report.hedges_won,
        "cancelled": report.cancelled,
        "points": report.points,
        "restUntil": report.rest_until,
        "restCause": report.rest_cause,
        "lastOutcome": report.last_outcome,
        "lastAt": report.last_at,
        "seconds": {
            kind: {f"p{100 * share:g}": value for share, value in quantiles.items()}
            for kind, quantiles in report.latencies().items()
        },
    }


def _told(reports: "Sequence[EndpointReport]") -> RenderableType:
    if not reports:
        return Text("No endpoint was asked yet. Name them in a workers.json (docs/how-to/tkgm.md).")
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for number, column in enumerate(
        ("endpoint", "answers", "failures", "second tries", "won", "points today", "p50", "p99", "")
    ):
        table.add_column(column, justify="left" if number == 0 else "right")
    for report in reports:
        latencies = report.latencies()
        usual = latencies.get("single") or next(iter(latencies.values()), {})
        rest = ""
        if report.rest_until is not None:
            rest = f"rests until {report.rest_until:%H:%M:%S} UTC: {report.rest_cause}"
        table.add_row(
            report.url,
            f"{report.successes:,}",
            f"{report.failures:,}",
            f"{report.hedges:,}",
            f"{report.hedges_won:,}",
            f"{report.points:,}",
            _milliseconds(usual.get(0.5)),
            _milliseconds(usual.get(0.99)),
            rest,
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"
