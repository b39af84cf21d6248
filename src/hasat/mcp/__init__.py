"""Tools for assistants over the Model Context Protocol; they need the extra `mcp`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

from hasat.extras import is_installed, missing_extra

if TYPE_CHECKING:
    from fastapi import FastAPI

    from hasat.source import Source, ToolContext


@asynccontextmanager
async def serve_tools(
    app: "FastAPI", context: "ToolContext", sources: "Sequence[Source]", path: str
) -> AsyncIterator[None]:
    """Serve the tools over HTTP at `path`; without the extra, a problem that names it."""
    if not is_installed("mcp"):

        async def explain() -> NoReturn:
            raise missing_extra("mcp", path)

        app.add_api_route(
            path, explain, methods=["GET", "POST"], response_model=None, include_in_schema=False
        )
        yield
        return
    from hasat.mcp.server import ToolServers, serve_streamable

    async with serve_streamable(app, ToolServers(context, sources), path):
        yield
