"""Parcels of the land registry: asked by point or number, and areas scanned with few questions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hasat.sources.tkgm.client import AsyncTKGMClient, TKGMClient

__all__ = ["AsyncTKGMClient", "TKGMClient"]


def __getattr__(name: str) -> Any:
    """The clients, loaded when they are asked for: most who come by need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hasat.sources.tkgm import client

    return getattr(client, name)
