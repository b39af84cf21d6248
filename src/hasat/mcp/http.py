"""The tools over HTTP: behind the same gate as the API, with the same keys and scopes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.http.routes import exchange_of
from hasat.mcp.server import ToolServers

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
