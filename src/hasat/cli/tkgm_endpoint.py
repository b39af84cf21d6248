"""`hasat tkgm endpoint`: a server that others' workers.json may name."""

import asyncio
import signal
from typing import Annotated

import typer

from hasat.cli import manners
from hasat.cli.family import Parent
from hasat.cli.house import open_house
from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings import Settings


def endpoint(
    ctx: typer.Context,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The registry to ask (tkgm.registry.url).")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (tkgm.endpoint.host).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on (tkgm.endpoint.port).")
    ] = None,
) -> None:
    """Answer questions about parcels for those who have the key, by asking the registry.

    Permission to ask the registry is your duty. Requests stay within tkgm.registry.daily and
    tkgm.registry.per_minute, and what the registry refuses is refused: nothing is asked from
    another address instead. The key is read from HASAT_TKGM_ENDPOINT_API_KEY or a file.

    Example: `hasat tkgm endpoint --registry https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api`
    """
    flags: dict[str, str] = ctx.find_root().obj
    given = {"registry.url": registry, "endpoint.host": host, "endpoint.port": port}
    flags |= {f"tkgm.{key}": str(value) for key, value in given.items() if value is not None}
    manners.run_async(serve_endpoint(manners.settings_of(ctx)))


async def serve_endpoint(settings: Settings) -> None:
    """Until a signal ends it."""
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind
    from hasat.sources.tkgm.registry.client import direct
    from hasat.sources.tkgm.registry.endpoint_server import endpoint_app

    wanted = settings.tkgm.endpoint
    if wanted.api_key is None:
        raise SettingsError(
            msg("There is no key that askers must show."),
            remedy=msg(
                "Set HASAT_TKGM_ENDPOINT_API_KEY or HASAT_TKGM_ENDPOINT_API_KEY_FILE, "
                "and the same as api_key in their workers.json."
            ),
        )
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with (
        Parent.watched() as parent,
        open_house(settings) as store,
        direct(store, settings) as registry,
    ):
        parent.when_gone(over.set)
        app = endpoint_app(registry, settings, wanted.api_key.get_secret_value())
        listening = bind(wanted.host, wanted.port)
        listener = Listener(app, listening, limits=ConnectionLimits.of(settings))
        await listener.start()
        if not parent.ready():
            manners.note(
                f"The endpoint answers at http://{wanted.host}:{wanted.port}, up to "
                f"{settings.tkgm.registry.daily:,} points a day."
            )
        await over.wait()
        listener.drain()
        await listener.until_over()
