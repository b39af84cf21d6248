"""HTTP: the app, who gets in, what leaves when something goes wrong, and how it is measured.

Reads the database through the store; what a source serves comes as routers with the source.
"""

from hasat.doors import Caller, TheSettings, TheStore, answers, body_limit, require
from hasat.serve.app import create_app
from hasat.serve.gate import check_may_start

__all__ = [
    "Caller",
    "TheSettings",
    "TheStore",
    "answers",
    "body_limit",
    "check_may_start",
    "create_app",
    "require",
]
