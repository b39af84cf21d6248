"""`hasat tkgm workers` and `hasat tkgm endpoint`: the endpoints in use, and serving one."""

import asyncio
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType

from hasat.console import context, output
from hasat.console.runtime import open_migrated_store, run_with_store, with_audit
from hasat.console.supervisor import Parent
from hasat.console.tables import Column
from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.settings import TkgmSettings

if TYPE_CHECKING:
    from hasat.fetch import EndpointReport
    from hasat.store import Store


def endpoint(
    ctx: typer.Context,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The upstream to ask (tkgm.registry.url).")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (tkgm.endpoint.host).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on (tkgm.endpoint.port).")
    ] = None,
) -> None:
    """Serve an endpoint: respond to parcel requests of callers with the key by asking TKGM.

    Make sure that you are allowed to send requests to TKGM. They stay within tkgm.registry.daily
    and tkgm.registry.per_minute, and a refusal is passed on: no request is sent from another
    address instead. The key is read from HASAT_TKGM_ENDPOINT_API_KEY or a file.

    Example: `hasat tkgm endpoint --registry https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api`
    """
    flags: dict[str, str] = ctx.find_root().obj
    given = {"registry.url": registry, "endpoint.host": host, "endpoint.port": port}
    flags |= {f"tkgm.{key}": str(value) for key, value in given.items() if value is not None}
    context.run_async(serve_endpoint(context.get_settings(ctx)))


async def serve_endpoint(settings: Settings) -> None:
    """Serve the endpoint until a signal arrives."""
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind
    from hasat.sources.tkgm.registry.client import open_direct
    from hasat.sources.tkgm.registry.endpoint_server import endpoint_app

    wanted = settings.section(TkgmSettings).endpoint
    if wanted.api_key is None:
        raise SettingsError(
            msg("The API key of the endpoint is not set."),
            remedy=msg(
                "Set HASAT_TKGM_ENDPOINT_API_KEY or HASAT_TKGM_ENDPOINT_API_KEY_FILE, "
                "and the same key as api_key in the callers' workers.json."
            ),
        )
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with (
        Parent.connect() as parent,
        open_migrated_store(settings) as store,
        open_direct(store, settings) as registry,
    ):
        parent.when_gone(ended.set)
        app = endpoint_app(registry, settings, wanted.api_key.get_secret_value())
        listening = bind(wanted.host, wanted.port)
        listener = Listener(app, listening, limits=ConnectionLimits.of(settings))
        await listener.start()
        if not parent.report_ready():
            output.note(
                msg(
                    "The endpoint is ready at {address}, up to {count:,} points a day.",
                    address=f"http://{wanted.host}:{wanted.port}",
                    count=settings.section(TkgmSettings).registry.daily,
                )
            )
        await ended.wait()
        listener.drain()
        await listener.wait_closed()


def workers(
    ctx: typer.Context,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="End all cooldowns, after you have removed their cause."),
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Show the endpoints: responses, failures, hedges, latencies and cooldowns.

    When all endpoints fail alike, the upstream as a whole has a cooldown, which is shown too.
    `hasat quota tkgm` shows what is left of the daily limits. Examples: `hasat tkgm workers` ·
    `hasat tkgm workers --reset` · `hasat tkgm workers --json`
    """
    from hasat.fetch import read_endpoints, reset_rests

    settings = context.get_settings(ctx)

    async def read(store: "Store") -> "list[EndpointReport]":
        if reset:
            work = with_audit("endpoints.reset", "tkgm", lambda store: reset_rests(store, "tkgm"))
            await work(store)
        return await read_endpoints(store, "tkgm")

    reports = run_with_store(settings, read)
    documents = [_document(report) for report in reports]
    output.emit(documents, json=json, human=lambda: _render(reports))


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
        "upstreamRestUntil": report.upstream_rest_until,
        "upstreamRestCause": report.upstream_rest_cause,
        "lastOutcome": report.last_outcome,
        "lastAt": report.last_at,
        "seconds": {
            kind: {f"p{100 * share:g}": value for share, value in quantiles.items()}
            for kind, quantiles in report.latencies().items()
        },
    }


def _render(reports: "Sequence[EndpointReport]") -> RenderableType:
    if not reports:
        none = msg("No endpoint was used yet. List them in a workers.json (docs/how-to/tkgm.md).")
        return output.text([none])
    table = output.table(
        "endpoint",
        Column("ok", 1),
        "failures",
        Column("hedges", 3),
        Column("won", 4),
        "points today",
        Column("p50", 5),
        Column("p99", 2),
        Column("state", wraps=True),
        numeric=True,
    )
    for report in reports:
        latencies = report.latencies()
        usual = latencies.get("single") or next(iter(latencies.values()), {})
        cooldown = ""
        if report.rest_until is not None:
            cooldown = msg(
                "cooldown until {time} UTC: {cause}",
                time=f"{report.rest_until:%H:%M:%S}",
                cause=report.rest_cause,
            )
        table.add_row(
            report.url,
            output.number(report.successes),
            output.number(report.failures),
            output.number(report.hedges),
            output.number(report.hedges_won),
            output.number(report.points),
            _milliseconds(usual.get(0.5)),
            _milliseconds(usual.get(0.99)),
            cooldown,
        )
    first = reports[0]
    if first.upstream_rest_until is None:
        return table
    closed = msg(
        "All endpoints failed alike, so no request is sent until {time} UTC: {cause}. "
        "`hasat tkgm workers --reset` ends this.",
        time=f"{first.upstream_rest_until:%H:%M:%S}",
        cause=first.upstream_rest_cause,
    )
    return Group(
        table,
        output.text([closed]),
    )


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else msg("{count:,.0f} ms", count=seconds * 1000)
