"""A source installed for one test by an entry point, in addition to the built-in ones."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from unittest import mock

from hasat.settings.plugins import GROUP, load_plugins

_MODULE = "toy_sources"


@contextmanager
def installed(**sources: object) -> Iterator[None]:
    """Install sources by the name of their entry point until the block ends."""
    module = ModuleType(_MODULE)
    for name, source in sources.items():
        setattr(module, name, source)
    entries = [
        *entry_points(group=GROUP),
        *(EntryPoint(name, f"{_MODULE}:{name}", GROUP) for name in sources),
    ]
    # Not mock.patch.dict, which would also forget the modules that the block imports.
    sys.modules[_MODULE] = module
    with mock.patch("hasat.settings.plugins.entry_points", return_value=entries):
        load_plugins.cache_clear()
        try:
            yield
        finally:
            load_plugins.cache_clear()
            del sys.modules[_MODULE]
