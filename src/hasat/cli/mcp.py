"""`hasat mcp`: the tools for assistants, over stdio or HTTP."""

import asyncio
import signal
from typing import Annotated

import typer

from hasat.cli import manners
from hasat.cli.house import catalogue_of, open_house
from hasat.settings import Settings


def add_to(app: typer.Typer) -> None:
    app.command()(mcp)


def mcp(
    ctx: typer.Context,
    operate: Annotated[
        bool,
        typer.Option("--operate", help="Offer also what changes something to who has no key."),
    ] = False,
) -> None:
    """Offer the tools to an assistant: over stdio, or over HTTP if MCP_TRANSPORT says so.

    On this machine it only reads, unless told otherwise; over HTTP a caller's key decides, as in
    the API. `hasat serve` offers them too, at /mcp. Examples: `hasat mcp` · `hasat mcp --operate` ·
    `MCP_TRANSPORT=sse FASTMCP_PORT=8000 hasat mcp`
    """
    settings = manners.settings_of(ctx)
    offer = _over_stdio if settings.mcp.transport == "stdio" else _listen
    manners.run_async(offer(settings, operate))


async def _over_stdio(settings: Settings, operate: bool) -> None:
    from hasat.mcp import ToolServers
    from hasat.sources.registry import ToolContext, all_sources

    async with open_house(settings, for_requests=True) as store:
        assistant = ToolServers(ToolContext(store, settings, catalogue_of(settings)), all_sources())
        server = assistant.operating if operate else assistant.reading
        await server.run_stdio_async()


async def _listen(settings: Settings, operate: bool) -> None:
    from contextlib import AsyncExitStack

    from fastapi import FastAPI

    from hasat.api import check_authentication_configured
    from hasat.api.app import add_middleware
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind, local_address
    from hasat.mcp import ToolServers
    from hasat.mcp.http import SSE_PATH, add_sse, serve_streamable
    from hasat.sources.registry import ToolContext, all_sources

    # The gate looks at where it listens: here that is the place of the tools.
    place = {"host": settings.mcp.host, "port": settings.mcp.port}
    there = settings.model_copy(update={"serve": settings.serve.model_copy(update=place)})
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_house(settings, for_requests=True))
        await check_authentication_configured(there, store)
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        add_middleware(app, there, store)
        shop = ToolContext(store, settings, catalogue_of(settings))
        assistant = ToolServers(shop, all_sources(), local_operates=operate)
        if settings.mcp.transport == "sse":
            path = SSE_PATH
            add_sse(app, assistant)
        else:
            path = settings.mcp.mount_path
            await stack.enter_async_context(serve_streamable(app, assistant, path))
        listening = bind(settings.mcp.host, settings.mcp.port)
        listener = Listener(app, listening, limits=ConnectionLimits.of(settings))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, listener.drain)
        await listener.start()
        manners.note(f"Hasat offers its tools at {local_address(there)}{path}")
        await listener.until_over()
