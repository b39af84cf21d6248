"""Archives: a whole dataset as files, from one snapshot, for those who begin to follow.

Touches PostgreSQL (schema feed, reading core) and the place where archives are kept.
"""

from hasat.feed.archive.manifest import Archive, Manifest
from hasat.feed.archive.storage import Storage, storage_of
from hasat.feed.archive.writer import write_archives

__all__ = ["Archive", "Manifest", "Storage", "storage_of", "write_archives"]
