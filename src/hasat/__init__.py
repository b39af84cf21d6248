"""Hasat collects from public sources within their limits and publishes every change."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Read the version of the installed package when it is first asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    found = globals()[name] = version("hasat")
    return found
