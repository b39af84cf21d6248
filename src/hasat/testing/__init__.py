"""Test kit for Hasat and its sources.

`conformance(source)` is the class of tests that every source passes. The fixtures are in
`hasat.testing.plugin`, which pytest loads wherever Hasat is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hasat.testing.mirror import Mirror, open_mirror
    from hasat.testing.promises import Conformance, conformance

__all__ = ["Conformance", "Mirror", "conformance", "open_mirror"]

# The plug-in is imported by every pytest on the machine, and must not load all of Hasat.
_MODULE_OF = {
    "Conformance": "hasat.testing.promises",
    "Mirror": "hasat.testing.mirror",
    "conformance": "hasat.testing.promises",
    "open_mirror": "hasat.testing.mirror",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hasat.testing' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
