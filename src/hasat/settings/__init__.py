"""Every setting: its name, its default, its check, and where its value came from.

Reads flags, the environment and YAML files; writes nothing and creates no folder.
"""

from hasat.settings.legacy import LegacyNames
from hasat.settings.load import load_settings
from hasat.settings.platform_sections import HmacClient, JobOverride
from hasat.settings.tree import Settings
from hasat.settings.types import Section
from hasat.settings.values import Origin

__all__ = [
    "HmacClient",
    "JobOverride",
    "LegacyNames",
    "Origin",
    "Section",
    "Settings",
    "load_settings",
]
