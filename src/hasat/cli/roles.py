"""The long-running roles: `up` (all in one), `serve` (HTTP), `worker` (jobs)."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hasat.cli import manners
from hasat.cli.family import Family, Parent
from hasat.cli.house import catalogue_of, open_house
from hasat.errors import DatabaseAwayError
from hasat.settings import Settings
from hasat.store import Store

if TYPE_CHECKING:
    from hasat.web.story import Language

HostFlag = Annotated[str | None, typer.Option(help="Address to listen on (HASAT_HOST).")]
PortFlag = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on (HASAT_PORT).")
]

_PATIENCE_SECONDS = 30.0


def add_to(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(serve)
    app.command()(worker)


def up(ctx: typer.Context, host: HostFlag = None, port: PortFlag = None) -> None:
    """Run everything on this machine: database, HTTP and jobs.

    Ctrl-C or SIGTERM lets running work finish; a second one stops at once.

    Examples: `hasat up` · `hasat up --port 9000` · `HASAT_DATABASE_URL=postgresql://... hasat up`
    """
    settings = _settings(ctx, host, port)
    manners.run_async(run_up(settings, flags_of(ctx)))


def serve(ctx: typer.Context, host: HostFlag = None, port: PortFlag = None) -> None:
    """Serve the API and the pages; fires no jobs.

    Examples: `hasat serve` · `hasat serve --host 0.0.0.0` (needs a key: `hasat keys create NAME`)
    """
    manners.run_async(_serve(_settings(ctx, host, port)))


def worker(ctx: typer.Context) -> None:
    """Run jobs when they are due, and tell who wants to be told; any number on any machines.

    Example: `HASAT_DATABASE_URL=postgresql://... hasat worker`
    """
    manners.run_async(_worker(_settings(ctx)))


def _settings(ctx: typer.Context, host: str | None = None, port: int | None = None) -> Settings:
    for key, value in (("serve.host", host), ("serve.port", port)):
        if value is not None:
            flags_of(ctx)[key] = str(value)
    return manners.settings_of(ctx)


def flags_of(ctx: typer.Context) -> dict[str, str]:
    """The global flags of this call, which the processes it starts are given too."""
    flags: dict[str, str] = ctx.find_root().obj
    return flags


async def run_up(
    settings: Settings,
    flags: dict[str, str],
    beside: Mapping[str, Sequence[str]] | None = None,
    when_ready: Callable[[Store], Awaitable[None]] | None = None,
) -> None:
    """Run the house; `beside` names further `hasat` commands that belong to it.

    `when_ready` is done, and says that it is ready, once it is.
    """
    from hasat.http.listener import check_port_free

    async with _patient_house(settings) as store:
        from hasat.api import check_authentication_configured

        await check_authentication_configured(settings, store)
        check_port_free(settings)
        command = [sys.executable, "-m", "hasat"]
        for key, value in flags.items():
            command += ["--set", f"{key}={value}"]
        family = Family(
            {role: [*command, role] for role in ("serve", "worker")}
            | {name: [*command, *words] for name, words in (beside or {}).items()}
        )
        async with _signals(family.drain, family.stop_now):
            await family.start()
            await family.ready()
            if when_ready is None and not family.ending:
                say_ready(settings, store)
            async with _beside_family(family, when_ready, store):
                await family.until_over()


def say_ready(settings: Settings, store: Store, language: "Language" = "en") -> None:
    """Where everything is."""
    from hasat.http.listener import local_address
    from hasat.web.story import WORDS

    words = WORDS[language]
    where = local_address(settings)
    embedded = f"{words['embedded']}, " if store.embedded else ""
    doors = {
        "status": f"{where}/api/v1/status",
        "metrics": f"{where}/metrics",
        "tools": f"{where}{settings.mcp.mount_path} (MCP)",
        "database": f"{embedded}{store.label}",
        "jobs": "hasat jobs list",
    }
    manners.note(words["ready"].format(where=where))
    for name, door in doors.items():
        manners.note(f"  {words[name]:<10} {door}")
    manners.note(words["stop"])


@asynccontextmanager
async def _beside_family(
    family: Family, when_ready: Callable[[Store], Awaitable[None]] | None, store: Store
) -> AsyncIterator[None]:
    """What is done once everything is ready; it ends with the family, and its failure ends both."""
    if when_ready is None or family.ending:
        yield
        return
    doing = asyncio.ensure_future(when_ready(store))
    doing.add_done_callback(
        lambda done: family.drain() if not done.cancelled() and done.exception() else None
    )
    ending = asyncio.create_task(family.until_ending(), name="ending")
    ending.add_done_callback(lambda _: doing.cancel())
    try:
        yield
    finally:
        ending.cancel()
        await asyncio.wait({ending})
        doing.cancel()
        await asyncio.wait({doing})
    if not doing.cancelled():
        doing.result()


async def _serve(settings: Settings) -> None:
    from hasat.api import check_authentication_configured, create_app
    from hasat.api.routes import build_routes
    from hasat.http.connections import ConnectionLimits
    from hasat.http.listener import Listener, bind, local_address
    from hasat.mcp import ToolServers
    from hasat.mcp.http import serve_streamable
    from hasat.sources.registry import ToolContext, all_sources
    from hasat.web import add_pages

    opened = _patient_house(settings, for_requests=True)
    async with opened as store, Parent.watched() as parent:
        await check_authentication_configured(settings, store)
        catalogue = catalogue_of(settings)
        app = create_app(settings, store, catalogue, all_sources())
        add_pages(app, settings, store, catalogue, all_sources())
        assistant = ToolServers(ToolContext(store, settings, catalogue), all_sources())
        listening = bind(settings.serve.host, settings.serve.port)
        limits = ConnectionLimits.of(settings)
        listener = Listener(app, listening, on_drain=app.state.notifier.close, limits=limits)
        parent.when_gone(listener.drain)
        async with (
            serve_streamable(app, assistant, settings.mcp.mount_path),
            _signals(listener.drain, listener.stop_now, parent),
        ):
            build_routes(app)
            await listener.start()
            if not parent.ready():
                manners.note(f"Hasat serves at {local_address(settings)}")
            await listener.until_over()


async def _worker(settings: Settings) -> None:
    from hasat.cli.house import health_of
    from hasat.deliver.loop import Deliverer
    from hasat.jobs import Worker

    async with _patient_house(settings) as store, Parent.watched() as parent:
        engine = Worker(catalogue_of(settings), store, settings)
        deliverer = Deliverer(store, settings, health=health_of(store, settings))
        parent.when_gone(engine.drain)
        async with _signals(engine.drain, engine.stop_now, parent), deliverer.running():
            if not parent.ready():
                manners.note(f"Hasat works on the jobs of {store.label}")
            await engine.run()


@asynccontextmanager
async def _patient_house(settings: Settings, *, for_requests: bool = False) -> AsyncIterator[Store]:
    """The store; a given server that is still starting is waited for, with a remark."""
    async with AsyncExitStack() as stack:
        yield await _enter_patiently(stack, settings, for_requests=for_requests)


async def _enter_patiently(
    stack: AsyncExitStack, settings: Settings, *, for_requests: bool
) -> Store:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_SECONDS
    pause = 0.5
    while True:
        try:
            opened = open_house(settings, for_requests=for_requests)
            return await stack.enter_async_context(opened)
        except DatabaseAwayError as error:
            if settings.database.url is None or loop.time() > deadline:
                raise
            left = deadline - loop.time()
            manners.note(f"{error.message} Trying again for {left:.0f} seconds.")
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


@asynccontextmanager
async def _signals(
    drain: Callable[[], object], stop_now: Callable[[], object], parent: Parent | None = None
) -> AsyncIterator[None]:
    """The first SIGTERM or SIGINT drains, the second stops; a child leaves the talking."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            if parent is None or parent.is_missing:
                manners.note("Finishing what is running; press Ctrl-C again to stop at once.")
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
