"""What sources say about themselves in /api/v1/status and /health."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from hasat.sources.registry import Source
from hasat.store import Store

StatusHook = Callable[[Store], Awaitable[Mapping[str, Any]]]


async def _sources(request: Request) -> Sequence[Source]:
    sources: Sequence[Source] = request.app.state.sources
    return sources


TheSources = Annotated[Sequence[Source], Depends(_sources)]


async def report_of(source: Source, store: Store) -> Mapping[str, Any]:
    """The source's own report; `checks` in it are its part of /health."""
    # A source without a hook has nothing to add to its name.
    hook: StatusHook | None = getattr(source, "status", None)
    return {} if hook is None else await hook(store)
