"""The long-running commands: `up` (all in one), `serve` (HTTP), `worker` (jobs) and `mcp`."""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hasat.console import context, output
from hasat.console.runtime import build_catalogue, open_migrated_store
from hasat.console.supervisor import Parent, Supervisor
from hasat.errors import DatabaseAwayError
from hasat.extras import is_installed, require_extra
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.source.installed import check_platform_extras
from hasat.store import Store
from hasat.telemetry import exporting

if TYPE_CHECKING:
    from hasat.deliver.events import Health

HostFlag = Annotated[str | None, typer.Option(help="Address to listen on (HASAT_HOST).")]
PortFlag = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on (HASAT_PORT).")
]

_DATABASE_WAIT_SECONDS = 30.0


def up(ctx: typer.Context, host: HostFlag = None, port: PortFlag = None) -> None:
    """Run everything on this machine: database, HTTP and jobs.

    Ctrl-C or SIGTERM lets running work finish; a second one stops at once.

    Examples: `hasat up` · `hasat up --port 9000` · `HASAT_DATABASE_URL=postgresql://... hasat up`
    """
    settings = _settings(ctx, host, port)
    context.run_async(run_up(settings, context.get_flags(ctx)))


def serve(
    ctx: typer.Context,
    host: HostFlag = None,
    port: PortFlag = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Processes that serve the port (HASAT_SERVE_WORKERS)."),
    ] = None,
) -> None:
    """Serve the API and the dashboard; runs no jobs.

    Examples: `hasat serve` · `hasat serve --host 0.0.0.0` (needs a key: `hasat keys create NAME`)
    """
    import uvloop

    from hasat.http.listener import shared_socket

    settings = _settings(ctx, host, port, workers)
    listening = shared_socket()
    if listening is None and settings.serve.workers > 1:
        context.run_async(_serve_with_workers(settings, context.get_flags(ctx)))
    else:
        with exporting("serve"):
            context.run_async(_serve(settings, listening), uvloop.new_event_loop)


def worker(ctx: typer.Context) -> None:
    """Run jobs when they are due and deliver notifications; any number on any machines.

    Example: `HASAT_DATABASE_URL=postgresql://... hasat worker`
    """
    settings = _settings(ctx)
    with exporting("worker"):
        context.run_async(_worker(settings))


def mcp(
    ctx: typer.Context,
    operate: Annotated[
        bool,
        typer.Option("--operate", help="Offer tools that change state to callers without a key."),
    ] = False,
) -> None:
    """Offer the MCP tools to an assistant: over stdio, or over HTTP as MCP_TRANSPORT says.

    On this machine the tools only read unless --operate is given; over HTTP the caller's key
    decides, as in the API. `hasat serve` offers them too, at /mcp.

    Examples: `hasat mcp` · `hasat mcp --operate` ·
    `MCP_TRANSPORT=sse FASTMCP_PORT=8000 hasat mcp`
    """
    settings = context.get_settings(ctx)
    require_extra("mcp", "hasat mcp")
    offer = _mcp_stdio if settings.mcp.transport == "stdio" else _mcp_http
    with exporting("mcp"):
        context.run_async(offer(settings, operate))


def _settings(
    ctx: typer.Context,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
) -> Settings:
    given = {"serve.host": host, "serve.port": port, "serve.workers": workers}
    for key, value in given.items():
        if value is not None:
            context.get_flags(ctx)[key] = str(value)
    settings = context.get_settings(ctx)
    check_platform_extras(settings)
    return settings


async def run_up(
    settings: Settings,
    flags: dict[str, str],
    extra: Mapping[str, Sequence[str]] | None = None,
    when_ready: Callable[[Store], Awaitable[None]] | None = None,
) -> None:
    """Run the API and a worker, and the `hasat` commands in `extra`, until a signal.

    `when_ready` runs once all processes are ready; it has to announce that itself.
    """
    from hasat.http.listener import check_port_free

    async with _wait_for_store(settings) as store:
        from hasat.api.authentication import check_authentication_configured

        await check_authentication_configured(settings, store)
        check_port_free(settings)
        command = _command(flags)
        supervisor = Supervisor(
            {role: [*command, role] for role in ("serve", "worker")}
            | {name: [*command, *arguments] for name, arguments in (extra or {}).items()}
        )
        async with _signals(supervisor.drain, supervisor.stop_now):
            await supervisor.start()
            await supervisor.wait_ready()
            if when_ready is None and not supervisor.ending:
                announce(settings, store)
            async with _when_ready(supervisor, when_ready, store):
                await supervisor.wait_ended()


def announce(settings: Settings, store: Store) -> None:
    """Print the addresses of everything that runs."""
    from hasat.http.listener import local_address

    where = local_address(settings)
    database = msg("embedded, {label}", label=store.label) if store.embedded else store.label
    addresses = {
        msg("status"): f"{where}/api/v1/status",
        msg("metrics"): f"{where}/metrics",
        msg("database"): output.localize(database),
        msg("jobs"): "hasat jobs list",
    }
    if is_installed("mcp"):
        addresses[msg("tools")] = f"{where}{settings.mcp.mount_path} (MCP)"
    output.note(msg("Hasat is ready at {where}", where=where))
    for name, address in addresses.items():
        output.note(f"  {output.localize(name):<10} {address}")
    output.note(msg("Stop with Ctrl-C; running jobs finish first."))


@asynccontextmanager
async def _when_ready(
    supervisor: Supervisor, action: Callable[[Store], Awaitable[None]] | None, store: Store
) -> AsyncIterator[None]:
    """Run `action` while the processes run; either one ends the other."""
    if action is None or supervisor.ending:
        yield
        return
    acting = asyncio.ensure_future(action(store))
    acting.add_done_callback(
        lambda done: supervisor.drain() if not done.cancelled() and done.exception() else None
    )
    ending = asyncio.create_task(supervisor.wait_ending(), name="ending")
    ending.add_done_callback(lambda _: acting.cancel())
    try:
        yield
    finally:
        ending.cancel()
        await asyncio.wait({ending})
        acting.cancel()
        await asyncio.wait({acting})
    if not acting.cancelled():
        acting.result()


def _command(flags: Mapping[str, str]) -> list[str]:
    """Return the start of a `hasat` command with the settings of this one."""
    command = [sys.executable, "-m", "hasat"]
    for key, value in flags.items():
        command += ["--set", f"{key}={value}"]
    return command


async def _serve_with_workers(settings: Settings, flags: Mapping[str, str]) -> None:
    """Run several processes that accept connections from one socket; replace those that die.

    The socket belongs to this process, so connections that a dead process has not accepted wait for
    the others.
    """
    from hasat.api.authentication import check_authentication_configured
    from hasat.api.metrics import COUNTERS_FOLDER
    from hasat.http.listener import bind, local_address, share

    async with _wait_for_store(settings) as store, Parent.connect() as parent:
        await check_authentication_configured(settings, store)
        with (
            bind(settings.serve.host, settings.serve.port) as listening,
            tempfile.TemporaryDirectory(prefix="hasat-metrics-") as counters,
        ):
            listening.listen(1024)
            names = [f"serve {number}" for number in range(1, settings.serve.workers + 1)]
            supervisor = Supervisor(
                {name: [*_command(flags), "serve"] for name in names},
                descriptors=[listening.fileno()],
                environ={**share(listening), COUNTERS_FOLDER: counters},
            )

            def drain() -> None:
                # Before the processes stop accepting, so that no client waits for nothing.
                listening.close()
                supervisor.drain()

            parent.when_gone(drain)
            async with _signals(drain, supervisor.stop_now, parent):
                await supervisor.start()
                await supervisor.wait_ready()
                if not supervisor.ending and not parent.report_ready():
                    output.note(
                        msg(
                            "Hasat serves at {address} with {count} processes",
                            address=local_address(settings),
                            count=len(names),
                        )
                    )
                await supervisor.wait_ended()


async def _serve(settings: Settings, listening: socket.socket | None) -> None:
    from hasat.api.app import create_app
    from hasat.api.authentication import check_authentication_configured
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind, local_address
    from hasat.mcp import serve_tools
    from hasat.source import ToolContext
    from hasat.source.installed import all_sources
    from hasat.web import add_pages

    opened = _wait_for_store(settings, for_requests=True)
    async with opened as store, Parent.connect() as parent:
        await check_authentication_configured(settings, store)
        catalogue = build_catalogue(settings)
        app = create_app(settings, store, catalogue, all_sources())
        add_pages(app, settings, store, catalogue, all_sources())
        tools = ToolContext(store, settings, catalogue)
        bound = listening or bind(settings.serve.host, settings.serve.port)
        limits = ConnectionLimits.of(settings)
        listener = Listener(app, bound, on_drain=app.state.notifier.close, limits=limits)
        parent.when_gone(listener.drain)
        async with (
            serve_tools(app, tools, all_sources(), settings.mcp.mount_path),
            _signals(listener.drain, listener.stop_now, parent),
        ):
            # Now, so that the first request does not wait for it.
            app.state.routes.refresh()
            await listener.start()
            if not parent.report_ready():
                output.note(msg("Hasat serves at {address}", address=local_address(settings)))
            await listener.wait_closed()
            await app.state.usage.write()


async def _worker(settings: Settings) -> None:
    from hasat.deliver.dispatcher import Dispatcher
    from hasat.jobs import Worker
    from hasat.source.installed import all_datasets

    async with _wait_for_store(settings) as store, Parent.connect() as parent:
        worker = Worker(build_catalogue(settings), store, settings)
        health = health_checks(store, settings)
        deliverer = Dispatcher(store, settings, datasets=all_datasets(), health=health)
        parent.when_gone(worker.drain)
        async with _signals(worker.drain, worker.stop_now, parent), deliverer.running():
            if not parent.report_ready():
                output.note(msg("Hasat works on the jobs of {database}", database=store.label))
            await worker.run()


def health_checks(store: Store, settings: Settings) -> "Health":
    """Return a function that runs the health checks of all sources."""
    from hasat.api.health import source_report
    from hasat.source.installed import all_sources, missing_configuration

    async def check() -> dict[str, Mapping[str, Any]]:
        reports = [
            await source_report(source, store, settings)
            for source in all_sources()
            if missing_configuration(source, settings) is None
        ]
        return {name: check for one in reports for name, check in one.get("checks", {}).items()}

    return check


async def _mcp_stdio(settings: Settings, operate: bool) -> None:
    from hasat.mcp.server import ToolServers
    from hasat.source import ToolContext
    from hasat.source.installed import all_sources

    async with open_migrated_store(settings, for_requests=True) as store:
        tools = ToolContext(store, settings, build_catalogue(settings))
        servers = ToolServers(tools, all_sources())
        server = servers.operating if operate else servers.reading
        await server.run_stdio_async()


async def _mcp_http(settings: Settings, operate: bool) -> None:
    from fastapi import FastAPI

    from hasat.api.app import add_middleware
    from hasat.api.authentication import check_authentication_configured
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind, local_address
    from hasat.mcp.server import SSE_PATH, ToolServers, add_sse, serve_streamable
    from hasat.source import ToolContext
    from hasat.source.installed import all_sources

    # Authentication depends on the address that is served, which is the one of the tools here.
    address = {"host": settings.mcp.host, "port": settings.mcp.port}
    served = settings.model_copy(update={"serve": settings.serve.model_copy(update=address)})
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_migrated_store(settings, for_requests=True))
        await check_authentication_configured(served, store)
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        add_middleware(app, served, store)
        tools = ToolContext(store, settings, build_catalogue(settings))
        servers = ToolServers(tools, all_sources(), local_operates=operate)
        if settings.mcp.transport == "sse":
            path = SSE_PATH
            add_sse(app, servers)
        else:
            path = settings.mcp.mount_path
            await stack.enter_async_context(serve_streamable(app, servers, path))
        listening = bind(settings.mcp.host, settings.mcp.port)
        listener = Listener(app, listening, limits=ConnectionLimits.of(settings))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, listener.drain)
        await listener.start()
        where = f"{local_address(served)}{path}"
        output.note(msg("Hasat offers its tools at {address}", address=where))
        await listener.wait_closed()
        await app.state.usage.write()


@asynccontextmanager
async def _wait_for_store(
    settings: Settings, *, for_requests: bool = False
) -> AsyncIterator[Store]:
    """Open the store; wait for a configured server that is still starting."""
    async with AsyncExitStack() as stack:
        yield await _enter_store(stack, settings, for_requests=for_requests)


async def _enter_store(stack: AsyncExitStack, settings: Settings, *, for_requests: bool) -> Store:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _DATABASE_WAIT_SECONDS
    pause = 0.5
    while True:
        try:
            opened = open_migrated_store(settings, for_requests=for_requests)
            return await stack.enter_async_context(opened)
        except DatabaseAwayError as error:
            left = deadline - loop.time()
            if settings.database.url is None or left < 0:
                raise
            retry = msg("Trying again for {seconds:.0f} seconds.", seconds=left)
            output.note(join([error.message, retry]))
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


@asynccontextmanager
async def _signals(
    drain: Callable[[], object], stop_now: Callable[[], object], parent: Parent | None = None
) -> AsyncIterator[None]:
    """Drain on the first SIGTERM or SIGINT, stop on the second; a child prints no note."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            if parent is None or parent.is_missing:
                output.note(msg("Finishing what is running; press Ctrl-C again to stop at once."))
            drain()
        else:
            stop_now()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
