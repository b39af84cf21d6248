"""Parcels of the Turkish land registry: lookups by point or number, and scans of areas."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hasat.sources.tkgm.client import AsyncTKGMClient, TKGMClient

__all__ = ["AsyncTKGMClient", "TKGMClient"]


def __getattr__(name: str) -> Any:
    """Import the clients on first use, because most importers of this package need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hasat.sources.tkgm import client

    return getattr(client, name)
