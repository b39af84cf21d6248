"""Building blocks for the tools that sources offer over MCP."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from hasat.http.routes import StorableText
from hasat.source import Tool
from hasat.store.audit import MAX_TEXT
from hasat.text import MAX_EXACT_INTEGER

Limit = Annotated[int, Field(ge=1, le=500, description="Maximum number of results.")]
Text = Annotated[StorableText, Field(max_length=200)]
Id = Annotated[int, Field(ge=0, le=MAX_EXACT_INTEGER)]
"""A numeric id assigned by an upstream."""

RunId = Annotated[
    int, Field(strict=True, ge=1, le=MAX_EXACT_INTEGER, description="The run's number.")
]


Reason = Annotated[
    StorableText | None, Field(max_length=MAX_TEXT, description="Why, for the audit record.")
]


class ToolResponse(BaseModel):
    """The base of every tool's response; `ts_utc` is the database's clock."""

    ok: bool = True
    ts_utc: datetime


def tools(*runs: Callable[..., Awaitable[BaseModel]]) -> tuple[Tool, ...]:
    """Return functions as tools that only read."""
    return tuple(Tool(run) for run in runs)


def operating_tool(run: Callable[..., Awaitable[BaseModel]], audit: str) -> Tool:
    """Return a function that changes something as a tool, with its code in the audit record."""
    return Tool(run, "operate", audit)
