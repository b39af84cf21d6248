"""MCP servers of the platform's and the sources' tools, over stdio or HTTP.

A caller without the scope `operate` gets a server with the reading tools only, so that it is shown
exactly what it may use.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ValidationError
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat import __version__
from hasat.errors import HasatError, NotAllowedError, UsageError
from hasat.http.routes import (
    Caller,
    DatasetNotAllowedError,
    actor_of,
    check_dataset_access,
    exchange_of,
)
from hasat.mcp.tools import PlatformTools
from hasat.messages import msg
from hasat.source import Source, Tool, ToolContext
from hasat.source.parts import load_part
from hasat.store import Store
from hasat.store.audit import Actor, audited, command_actor

_INSTRUCTIONS = (
    "Hasat mirrors public sources and stores every change. get_job_status returns the state of the "
    "jobs, get_database_stats the datasets, get_recent_changes the newest changes. An "
    "inferred_status of a match was never published: never present it as a result."
)


class ToolServers:
    """Two MCP servers with the tools of the platform and its sources: reading and operating.

    A local caller without a key may only read, unless `local_operates` is set.
    """

    def __init__(
        self, context: ToolContext, sources: Sequence[Source], *, local_operates: bool = False
    ) -> None:
        self._local_operates = local_operates
        tools = list(PlatformTools(context, sources).all())
        for source in sources:
            tools += load_part(source, functools.partial(source.tools, context)) or ()
        reads = [tool for tool in tools if tool.access == "read"]
        self.reading = _Server("hasat", context.store, reads, refused=tools)
        self.operating = _Server("hasat-operating", context.store, tools)
        named = [tool for tool in reads if "dataset" in inspect.signature(tool.run).parameters]
        self.restricted = _Server("hasat-restricted", context.store, named, refused=tools)
        """For keys that may read only some datasets: tools that are given the dataset."""

    @property
    def servers(self) -> tuple[MCPServer[Any], MCPServer[Any]]:
        return self.reading, self.operating

    @property
    def all(self) -> tuple[MCPServer[Any], ...]:
        return (*self.servers, self.restricted)

    def for_caller(self, caller: Caller | None) -> MCPServer[Any]:
        """Return the server with the tools that a caller may use."""
        if caller is None or (caller.is_local and not self._local_operates):
            return self.reading
        if caller.datasets is not None:
            return self.restricted
        return self.operating if "operate" in caller.scopes else self.reading


class _Server(MCPServer[Any]):
    def __init__(
        self, name: str, store: Store, tools: Sequence[Tool], refused: Sequence[Tool] = ()
    ) -> None:
        super().__init__(
            name,
            title="Hasat",
            version=__version__,
            instructions=_INSTRUCTIONS,
            # More would go to the root logger, which Hasat configures itself.
            log_level="WARNING",
        )
        self._refused = {_name(tool) for tool in refused} - {_name(tool) for tool in tools}
        self._store = store
        self._audit = {_name(tool): tool.audit for tool in (*tools, *refused) if tool.audit}
        self._arguments = {
            _name(tool): list(inspect.signature(tool.run).parameters) for tool in tools
        }
        for tool in tools:
            reads = tool.access == "read"
            self.add_tool(
                _with_tool_errors(tool.run),
                annotations=ToolAnnotations(
                    read_only_hint=reads, destructive_hint=False, open_world_hint=False
                ),
            )

    @property
    def audited(self) -> set[str]:
        """The names of the tools that leave an audit record."""
        return set(self._audit)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        action = self._audit.get(name)
        if action is None:
            return await self._call(name, arguments, context)
        named = next(iter(arguments.values()), "")
        async with audited(self._store, _actor(context), action, named, tool=name):
            return await self._call(name, arguments, context)

    async def _call(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
        caller = _caller(context)
        if caller is not None and caller.datasets is not None:
            _check_restricted(caller, name, arguments, refused=name in self._refused)
        if name in self._refused:
            raise _tool_error(
                NotAllowedError(
                    msg("{name} requires the scope 'operate'.", name=name),
                    remedy=msg(
                        "Use a key created with `hasat keys create NAME --scope operate`, or start "
                        "`hasat mcp --operate`."
                    ),
                )
            )
        known = self._arguments.get(name, list(arguments))
        if unknown := sorted(arguments.keys() - set(known)):
            # Ignoring an argument would change the meaning of the call.
            raise _tool_error(
                UsageError(
                    msg(
                        "{name} has no argument {unknown}.",
                        name=name,
                        unknown=", ".join(map(repr, unknown)),
                    ),
                    remedy=msg("Arguments: {known}.", known=", ".join(known) or msg("none")),
                )
            )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if type(error) is ToolError and isinstance(error.__cause__, ValidationError):
                raise _tool_error(UsageError(_mistakes(name, error.__cause__)))  # noqa: B904
            raise


def _name(tool: Tool) -> str:
    name: str = tool.run.__name__
    return name


def _request(context: Any) -> Any:
    """Return the HTTP request that calls a tool; None over stdio."""
    inner = getattr(context, "_request_context", None)
    return inner.request if inner is not None else None


def _caller(context: Any) -> Caller | None:
    request = _request(context)
    return None if request is None else exchange_of(request.scope).caller


def _check_restricted(
    caller: Caller, name: str, arguments: dict[str, Any], *, refused: bool
) -> None:
    """Reject a call of a restricted key that does not name one of its datasets."""
    try:
        if refused:
            raise DatasetNotAllowedError(
                msg(
                    "The key of {caller!r} is restricted to datasets; {path} is not part of them.",
                    caller=caller.name,
                    path=name,
                )
            )
        check_dataset_access(caller, str(arguments.get("dataset", "")))
    except DatasetNotAllowedError as error:
        raise _tool_error(error) from error


def _actor(context: Any) -> Actor:
    """Return who calls a tool: the caller of the HTTP request, else the user of this process."""
    request = _request(context)
    return command_actor("mcp") if request is None else actor_of(request, "mcp")


def _tool_error(error: HasatError) -> ToolError:
    """Return an error as a tool reports it, with its remedy."""
    refusal = ToolError(str(error))
    refusal.__cause__ = error
    return refusal


def _mistakes(name: str, error: ValidationError) -> str:
    mistakes = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return f"Invalid arguments of {name}: {'; '.join(mistakes)}."


def _with_tool_errors(
    run: Callable[..., Awaitable[BaseModel]],
) -> Callable[..., Awaitable[BaseModel]]:
    """Return the function with a HasatError turned into a tool error."""

    @functools.wraps(run)
    async def call(*args: Any, **kwargs: Any) -> BaseModel:
        try:
            return await run(*args, **kwargs)
        except HasatError as error:
            raise _tool_error(error) from error

    return call


SSE_PATH = "/sse"
_MESSAGES_PATH = "/messages/"
# HostMiddleware checks hosts and origins already.
_TRANSPORT_SECURITY = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class _Dispatcher:
    """Passes each request to the server with the tools that its caller may use."""

    datasets: frozenset[str] = frozenset()
    """A restricted key gets a server whose tools check the dataset."""

    def __init__(self, servers: ToolServers, apps: Iterable[ASGIApp]) -> None:
        self._servers = servers
        self._apps = dict(zip((one.name for one in servers.all), apps, strict=True))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._servers.for_caller(exchange_of(scope).caller)
        await self._apps[server.name](scope, receive, send)


@asynccontextmanager
async def serve_streamable(app: FastAPI, servers: ToolServers, path: str) -> AsyncIterator[None]:
    """Serve the streamable HTTP transport at `path`, without sessions: any process can respond."""
    apps = [
        server.streamable_http_app(
            streamable_http_path=path,
            json_response=True,
            stateless_http=True,
            transport_security=_TRANSPORT_SECURITY,
        )
        for server in servers.all
    ]
    _add(app, [path], _Dispatcher(servers, apps))
    async with AsyncExitStack() as stack:
        for server in servers.all:
            await stack.enter_async_context(server.session_manager.run())
        yield


def add_sse(app: FastAPI, servers: ToolServers) -> None:
    """Serve the SSE transport at /sse, for older clients."""
    apps = [
        server.sse_app(
            sse_path=SSE_PATH, message_path=_MESSAGES_PATH, transport_security=_TRANSPORT_SECURITY
        )
        for server in servers.all
    ]
    _add(app, [SSE_PATH, _MESSAGES_PATH], _Dispatcher(servers, apps))


def _add(app: FastAPI, paths: Sequence[str], dispatcher: _Dispatcher) -> None:
    app.router.routes.extend(Route(path, dispatcher, include_in_schema=False) for path in paths)
