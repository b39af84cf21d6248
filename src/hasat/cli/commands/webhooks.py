"""`hasat webhooks`: endpoints, deliveries and dead letters."""

from typing import Annotated, Any, Literal
from uuid import uuid4

import typer
from rich.console import RenderableType
from rich.text import Text

from hasat.clock import system_clock
from hasat.console import context, output
from hasat.console.runtime import open_existing_store, run_with_store, with_audit
from hasat.console.tables import Column, local_time, outcome
from hasat.deliver import Event
from hasat.deliver.outbox import count_deliveries, get_delivery, list_deliveries
from hasat.deliver.outbox import replay as replay_deliveries
from hasat.deliver.payloads import build_payload
from hasat.deliver.webhook_endpoints import endpoints_of, find_endpoint
from hasat.deliver.webhooks import AttemptResult, send
from hasat.errors import NothingToDoError, UsageError
from hasat.messages import msg
from hasat.settings import Settings

app = typer.Typer(help="Webhook endpoints, deliveries and dead letters.", no_args_is_help=True)

EndpointFlag = Annotated[
    str | None, typer.Option("--endpoint", help="Only deliveries to this endpoint.")
]
LimitFlag = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of deliveries.")]


@app.command("list")
def list_(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """List the endpoints with their events and the number of deliveries in each state.

    Examples: `hasat webhooks list` · `hasat webhooks list --json`
    """
    settings = context.get_settings(ctx)

    async def read() -> list[dict[str, Any]]:
        async with open_existing_store(settings) as store:
            counted = {tally.endpoint: tally for tally in await count_deliveries(store)}
        rows: list[dict[str, Any]] = [
            {
                "name": one.name,
                "format": one.format,
                "host": one.host,
                "signed": one.secret is not None,
                "notifyOn": list(one.notify_on),
            }
            for one in endpoints_of(settings)
        ]
        rows += [
            {"name": name, "format": None}
            for name in counted.keys() - _names(rows) - {"watchlists"}
        ]
        for row in rows:
            tally = counted.get(row["name"])
            for state in ("waiting", "delivered", "dead"):
                row[state] = getattr(tally, state, 0)
        return rows

    rows = context.run_async(read())

    def human() -> RenderableType:
        if not rows:
            none = msg(
                "No endpoints configured. Set webhooks.enabled, and webhooks.http, webhooks.slack "
                "or webhooks.endpoints."
            )
            return output.text([none])
        table = output.table(
            "endpoint",
            Column("format", 3),
            Column("host", 2),
            Column("events", 1, wraps=True),
            Column("waiting", numeric=True),
            Column("delivered", numeric=True),
            Column("dead", numeric=True),
        )
        for row in rows:
            table.add_row(
                row["name"],
                row["format"] or msg("not in the settings"),
                row.get("host", ""),
                ", ".join(row.get("notifyOn", [])) or msg("all"),
                *(str(row[state]) for state in ("waiting", "delivered", "dead")),
            )
        return table

    output.emit(rows, json=json, human=human)


@app.command()
def deliveries(
    ctx: typer.Context,
    endpoint: EndpointFlag = None,
    state: Annotated[
        Literal["waiting", "delivered", "dead"] | None, typer.Option(help="Only in this state.")
    ] = None,
    limit: LimitFlag = 20,
    json: output.JsonFlag = False,
) -> None:
    """List the deliveries, newest first.

    Examples: `hasat webhooks deliveries` · `hasat webhooks deliveries --state waiting`
    """
    _show(context.get_settings(ctx), endpoint, state, limit, json=json)


@app.command("dead-letters")
def dead_letters(
    ctx: typer.Context,
    endpoint: EndpointFlag = None,
    limit: LimitFlag = 20,
    json: output.JsonFlag = False,
) -> None:
    """List the deliveries that failed for good; `replay` sends them again.

    Example: `hasat webhooks dead-letters --endpoint http`
    """
    _show(context.get_settings(ctx), endpoint, "dead", limit, json=json)


@app.command()
def show(
    ctx: typer.Context,
    delivery: Annotated[
        int, typer.Argument(min=1, max=2**63 - 1, help="The number that `deliveries` shows.")
    ],
    json: output.JsonFlag = False,
) -> None:
    """Show one delivery and its message.

    Example: `hasat webhooks show 17`
    """
    settings = context.get_settings(ctx)
    found = run_with_store(settings, lambda store: get_delivery(store, delivery))
    document = {**found.public(), "payload": dict(found.payload)}

    def human() -> Text:
        return Text("\n".join(f"{name}: {value}" for name, value in document.items()))

    output.emit(document, json=json, human=human)


@app.command()
def replay(
    ctx: typer.Context,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(
            min=1, max=2**63 - 1, metavar="[DELIVERY]...", help="Deliveries to send again."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    endpoint: EndpointFlag = None,
    json: output.JsonFlag = False,
) -> None:
    """Send deliveries again, under the same ids; a worker sends them at once.

    Examples: `hasat webhooks replay 17 18` · `hasat webhooks replay --all --endpoint http`
    """
    if bool(numbers) == everything:
        raise UsageError(
            msg("Name the deliveries to send again, or use --all for all dead letters.")
        )
    settings = context.get_settings(ctx)
    replaying = with_audit(
        "delivery.replay",
        ", ".join(map(str, numbers or [])) or endpoint or "all",
        lambda store: replay_deliveries(store, numbers or None, endpoint),
    )
    sent = run_with_store(settings, replaying)
    if not sent:
        raise NothingToDoError(msg("There is nothing to send again."))
    output.emit(
        {"replayed": sent},
        json=json,
        human=lambda: msg(
            "{count:,} queued to be sent again: {numbers}",
            count=len(sent),
            numbers=", ".join(map(str, sent)),
        ),
    )


@app.command("test")
def send_test(
    ctx: typer.Context,
    endpoint: Annotated[str, typer.Argument(help="An endpoint that `list` shows.")],
    json: output.JsonFlag = False,
) -> None:
    """Send a test message to an endpoint now, without the outbox; exits 1 if it is not accepted.

    Example: `hasat webhooks test http`
    """
    settings = context.get_settings(ctx)
    wanted = find_endpoint(settings, endpoint)
    now = system_clock()
    event = Event("Test", "Info", "Deneme mesajı: bu adres bildirimleri alıyor.")

    async def send_test() -> AttemptResult:
        return await send(
            wanted.url,
            build_payload(event, uuid4(), now, wanted, settings.webhooks, now=now),
            timeout_seconds=wanted.timeout_seconds,
            private_networks=settings.webhooks.private_networks,
            now=now,
        )

    result = context.run_async(send_test())
    output.emit(
        {"endpoint": endpoint, "status": result.status, "error": result.error},
        json=json,
        human=lambda: (
            result.error
            or msg("{host} responded with {status}.", host=wanted.host, status=result.status)
        ),
    )
    if result.error is not None:
        raise typer.Exit(1)


def _show(
    settings: Settings,
    endpoint: str | None,
    state: Literal["waiting", "delivered", "dead"] | None,
    limit: int,
    *,
    json: bool,
) -> None:
    found = run_with_store(
        settings, lambda store: list_deliveries(store, endpoint=endpoint, state=state, limit=limit)
    )

    def human() -> RenderableType:
        if not found:
            return output.text([msg("No results.")])
        table = output.table(
            Column("number", numeric=True),
            "endpoint",
            "event",
            "at",
            "state",
            Column("failed attempts", 2, numeric=True),
            Column("last response", 1, wraps=True),
        )
        for one in found:
            table.add_row(
                str(one.id),
                one.endpoint,
                one.kind,
                local_time(one.at, settings),
                outcome(one.state),
                str(one.attempts),
                one.last_error or str(one.last_status or ""),
            )
        return table

    output.emit([one.public() for one in found], json=json, human=human)


def _names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}
