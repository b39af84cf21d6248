"""MCP servers of the platform's and the sources' tools, over stdio or HTTP.

A caller without the scope `operate` gets a server with the reading tools only, so that it is shown
exactly what it may use.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
from hasat.http.routes import Caller, actor_of, exchange_of
from hasat.mcp.tools import PlatformTools
from hasat.messages import msg
from hasat.sources.registry import Source, Tool, ToolContext
from hasat.store import Store
from hasat.store.audit import Actor, audited, command_actor

_INSTRUCTIONS = (
    "Hasat mirrors public sources and keeps every change. Ask get_job_status how collecting goes, "
    "get_database_stats what there is, get_recent_changes what changed. What is inferred about a "
    "match (inferred_status) was never published: never present it as a result."
)


class ToolServers:
    """The tools of the platform and its sources.

    An assistant on this machine only reads, unless it has a key to operate or `local_operates`.
    """

    def __init__(
        self, shop: ToolContext, sources: Sequence[Source], *, local_operates: bool = False
    ) -> None:
        self._local_operates = local_operates
        tools = list(PlatformTools(shop, sources).all())
        for source in sources:
            tools += source.tools(shop)
        reads = [tool for tool in tools if tool.access == "read"]
        self.reading = _Server("hasat", shop.store, reads, refused=tools)
        self.operating = _Server("hasat-operating", shop.store, tools)

    @property
    def servers(self) -> tuple[MCPServer[Any], MCPServer[Any]]:
        return self.reading, self.operating

    def for_caller(self, caller: Caller | None) -> MCPServer[Any]:
        if caller is None or (caller.is_local and not self._local_operates):
            return self.reading
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
            # Anything else would be said on a root logger that is ours to set up.
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
                _answering(tool.run),
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
        if name in self._refused:
            raise _refused(
                NotAllowedError(
                    msg("{name} needs the scope 'operate'.", name=name),
                    remedy=msg(
                        "Use a key made with `hasat keys create NAME --scope operate`, or start "
                        "`hasat mcp --operate`."
                    ),
                )
            )
        known = self._arguments.get(name, list(arguments))
        if unknown := sorted(arguments.keys() - set(known)):
            # Without it the answer would be to another question.
            raise _refused(
                UsageError(
                    msg(
                        "{name} has no argument {unknown}.",
                        name=name,
                        unknown=", ".join(map(repr, unknown)),
                    ),
                    remedy=msg("It has: {known}.", known=", ".join(known) or "none"),
                )
            )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if type(error) is ToolError and isinstance(error.__cause__, ValidationError):
                raise _refused(UsageError(_mistakes(name, error.__cause__)))  # noqa: B904
            raise


def _name(tool: Tool) -> str:
    name: str = tool.run.__name__
    return name


def _actor(context: Any) -> Actor:
    """Return who calls a tool: the caller of the HTTP request, else the user of this process."""
    inner = getattr(context, "_request_context", None)
    request = inner.request if inner is not None else None
    return command_actor("mcp") if request is None else actor_of(request, "mcp")


def _refused(error: HasatError) -> ToolError:
    """Return an error as a tool reports it: what went wrong and what to do next."""
    refusal = ToolError(str(error))
    refusal.__cause__ = error
    return refusal


def _mistakes(name: str, error: ValidationError) -> str:
    told = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return f"{name} was asked wrongly: {'; '.join(told)}."


def _answering(run: Callable[..., Awaitable[BaseModel]]) -> Callable[..., Awaitable[BaseModel]]:
    """The tool, with what went wrong told as a sentence and what to do next."""

    @functools.wraps(run)
    async def answer(*args: Any, **kwargs: Any) -> BaseModel:
        try:
            return await run(*args, **kwargs)
        except HasatError as error:
            raise _refused(error) from error

    return answer


SSE_PATH = "/sse"
_MESSAGES_PATH = "/messages/"
# Names and origins are the business of the gate in front of this.
_NO_SECOND_GUARD = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class _Door:
    """Leads each caller to the server that has what it may use."""

    def __init__(self, assistant: ToolServers, reading: ASGIApp, operating: ASGIApp) -> None:
        self._assistant = assistant
        self._apps = {assistant.reading.name: reading, assistant.operating.name: operating}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._assistant.for_caller(exchange_of(scope).caller)
        await self._apps[server.name](scope, receive, send)


@asynccontextmanager
async def serve_streamable(app: FastAPI, assistant: ToolServers, path: str) -> AsyncIterator[None]:
    """Answer at `path` of the app. No session is kept: any process can answer any request."""
    reading, operating = (
        server.streamable_http_app(
            streamable_http_path=path,
            json_response=True,
            stateless_http=True,
            transport_security=_NO_SECOND_GUARD,
        )
        for server in assistant.servers
    )
    _add(app, [path], _Door(assistant, reading, operating))
    async with AsyncExitStack() as stack:
        for server in assistant.servers:
            await stack.enter_async_context(server.session_manager.run())
        yield


def add_sse(app: FastAPI, assistant: ToolServers) -> None:
    """Answer at /sse, for clients of the older transport."""
    reading, operating = (
        server.sse_app(
            sse_path=SSE_PATH, message_path=_MESSAGES_PATH, transport_security=_NO_SECOND_GUARD
        )
        for server in assistant.servers
    )
    _add(app, [SSE_PATH, _MESSAGES_PATH], _Door(assistant, reading, operating))


def _add(app: FastAPI, paths: Sequence[str], door: _Door) -> None:
    app.router.routes.extend(Route(path, door, include_in_schema=False) for path in paths)
