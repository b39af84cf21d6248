"""Every setting: its name, its default, its check, and where its value came from.

Reads flags, the environment and YAML files; writes nothing and creates no folder.
"""

from hasat.settings.given import Origin
from hasat.settings.load import load_settings
from hasat.settings.platform_tree import HmacClient, JobOverride
from hasat.settings.source_tree import League
from hasat.settings.tree import Settings

__all__ = ["HmacClient", "JobOverride", "League", "Origin", "Settings", "load_settings"]
