"""HTTP: the app, who gets in, what leaves when something goes wrong, and how it is measured.

Reads the database through the store; what a source serves comes as routers with the source.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hasat.api.app import create_app
    from hasat.api.gate import check_authentication_configured
    from hasat.http.routes import (
        Caller,
        SettingsDep,
        StoreDep,
        body_limit,
        declare_responses,
        require,
    )

__all__ = [
    "Caller",
    "SettingsDep",
    "StoreDep",
    "body_limit",
    "check_authentication_configured",
    "create_app",
    "declare_responses",
    "require",
]

_ELSEWHERE = {"create_app": "hasat.api.app", "check_authentication_configured": "hasat.api.gate"}


def __getattr__(name: str) -> Any:
    """What is asked for, loaded only then: most commands need a part of this room, not the app."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "hasat.http.routes")), name)
