"""What sources say about themselves in /api/v1/status and /health."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store


async def _sources(request: Request) -> Sequence[Source]:
    sources: Sequence[Source] = request.app.state.sources
    return sources


SourcesDep = Annotated[Sequence[Source], Depends(_sources)]


async def source_report(source: Source, store: Store, settings: Settings) -> Mapping[str, Any]:
    """The source's own report; `checks` in it are its part of /health."""
    return {} if source.status is None else await source.status(store, settings)
