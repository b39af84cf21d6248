"""Archives: a whole dataset as files, written from one snapshot, for consumers to start from."""

from hasat.feed.archive.manifest import Archive, Manifest
from hasat.feed.archive.storage import Storage, storage_of
from hasat.feed.archive.writer import write_archives

__all__ = ["Archive", "Manifest", "Storage", "storage_of", "write_archives"]
