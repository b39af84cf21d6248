"""Where archives are kept: a folder, or a bucket of an S3-compatible store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from hasat.errors import UnavailableError
from hasat.settings import Settings

PIECE = 1 << 18


class MissingError(UnavailableError):
    """The archive is known, but its file is not where this machine looks for it."""

    code = "archive-elsewhere"
    title = "The file is not here"

    def __init__(self, path: str, label: str) -> None:
        super().__init__(
            f"{path} is not in {label} as this machine sees it.",
            remedy="Give all machines one folder or bucket (archives.provider, "
            "archives.base_path), or write it here with `hasat archive write`.",
        )


class Place(Protocol):
    """Keeps files by path, such as `einvoice/einvoice_users_....xml.gz`."""

    label: str

    def draft(self, path: str) -> Path:
        """The file to write before it is published; in a folder that exists."""

    async def publish(self, path: str) -> None:
        """Make the draft the file at that path: all of it or nothing."""

    async def size(self, path: str) -> int | None:
        """How long the file is; None if there is none."""

    def read(self, path: str, start: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `stop`, in pieces."""

    async def remove(self, path: str) -> None:
        """Remove the file and its draft, as far as they exist."""

    async def probe(self) -> None:
        """Raise an UnavailableError unless archives could be read from here now."""


def place_of(settings: Settings) -> Place:
    """The place that the settings name."""
    archives = settings.archives
    if archives.provider == "FileSystem":
        from hasat.feed.archive.folder import Folder

        return Folder(settings.home / archives.base_path)
    from hasat.feed.archive.bucket import Bucket

    return Bucket(archives, settings.home / "archives")
