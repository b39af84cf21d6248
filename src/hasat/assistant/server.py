"""The tools as a server of the protocol: one for who may only read, one for who may operate.

So a caller is shown exactly what it may do, and nothing has to be checked a second time.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ValidationError

from hasat import __version__
from hasat.assistant.operating import OperatingTools
from hasat.doors import Caller
from hasat.errors import HasatError
from hasat.sources.registry import Source, Tool, Workshop

_INSTRUCTIONS = (
    "Hasat mirrors public sources and keeps every change. Ask get_job_status how collecting goes, "
    "get_database_stats what there is, get_recent_changes what changed. What is inferred about a "
    "match (inferred_status) was never published: never present it as a result."
)


class Assistant:
    """The tools of the platform and its sources.

    An assistant on this machine only reads, unless it has a key to operate or `local_operates`.
    """

    def __init__(
        self, shop: Workshop, sources: Sequence[Source], *, local_operates: bool = False
    ) -> None:
        self._local_operates = local_operates
        tools = list(OperatingTools(shop, sources).all())
        for source in sources:
            tools += source.tools(shop)
        reads = [tool for tool in tools if tool.access == "read"]
        self.reading = _Server("hasat", reads, refused=tools)
        self.operating = _Server("hasat-operating", tools)

    @property
    def servers(self) -> tuple[MCPServer[Any], MCPServer[Any]]:
        return self.reading, self.operating

    def for_caller(self, caller: Caller | None) -> MCPServer[Any]:
        if caller is None or (caller.is_local and not self._local_operates):
            return self.reading
        return self.operating if "operate" in caller.scopes else self.reading


class _Server(MCPServer[Any]):
    def __init__(self, name: str, tools: Sequence[Tool], refused: Sequence[Tool] = ()) -> None:
        super().__init__(
            name,
            title="Hasat",
            version=__version__,
            instructions=_INSTRUCTIONS,
            # Anything else would be said on a root logger that is ours to set up.
            log_level="WARNING",
        )
        self._refused = {_name(tool) for tool in refused} - {_name(tool) for tool in tools}
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

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        if name in self._refused:
            raise ToolError(
                f"{name} needs the scope 'operate'. Use a key made with `hasat keys create NAME "
                "--scope operate`, or start `hasat mcp --operate`."
            )
        known = self._arguments.get(name, list(arguments))
        if unknown := sorted(arguments.keys() - set(known)):
            # Without it the answer would be to another question.
            raise ToolError(
                f"{name} has no argument {', '.join(map(repr, unknown))}. "
                f"It has: {', '.join(known) or 'none'}."
            )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if type(error) is ToolError and isinstance(error.__cause__, ValidationError):
                raise ToolError(_mistakes(name, error.__cause__)) from error
            raise


def _name(tool: Tool) -> str:
    name: str = tool.run.__name__
    return name


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
            raise ToolError(f"{error.message} {error.remedy or ''}".strip()) from error

    return answer
