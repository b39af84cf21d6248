"""Storage of archives: a folder, or a bucket of an S3-compatible store."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from hasat.errors import UnavailableError
from hasat.extras import require_extra
from hasat.messages import msg, template
from hasat.settings import Settings
from hasat.store.home import disk_full, is_disk_full

PIECE = 1 << 18


class MissingError(UnavailableError):
    """The archive is in the catalogue, but its file is not in the storage of this machine."""

    code = "archive-elsewhere"
    title = template("The file is not here")

    def __init__(self, path: str, label: str) -> None:
        super().__init__(
            msg("{path} is not in {label} as this machine sees it.", path=path, label=label),
            remedy=msg(
                "Give all machines one folder or bucket (archives.provider, "
                "archives.base_path), or write it here with `hasat archive write`."
            ),
        )


class Storage(Protocol):
    """Files by path, such as `einvoice/einvoice_users_....xml.gz`."""

    label: str

    def draft(self, path: str) -> Path:
        """Return the file to write before `publish`; its folder exists."""

    async def publish(self, path: str) -> None:
        """Turn the draft into the file at that path, completely or not at all."""

    async def size(self, path: str) -> int | None:
        """Return the size of the file, None if it does not exist."""

    def read(self, path: str, start: int, stop: int) -> AsyncIterator[bytes]:
        """Return the bytes from `start` to before `stop`, in pieces."""

    async def remove(self, path: str) -> None:
        """Remove the file and its draft if they exist."""

    async def probe(self) -> None:
        """Raise UnavailableError unless archives can be read now."""


def storage_of(settings: Settings) -> Storage:
    """Return the storage that the settings name."""
    archives = settings.archives
    if archives.provider == "FileSystem":
        return Folder(settings.home / archives.base_path)
    require_extra("s3", "archives.provider")
    from hasat.feed.archive.bucket import Bucket

    return Bucket(archives, settings.home / "archives")


class Folder:
    """Storage in a folder; files are renamed into place, so every name is a complete file."""

    def __init__(self, root: Path) -> None:
        self.label = f"the folder {root}"
        self._root = root

    def draft(self, path: str) -> Path:
        file = self._root / path
        with self._usable():
            file.parent.mkdir(parents=True, exist_ok=True)
        return _draft(file)

    async def publish(self, path: str) -> None:
        file = self._root / path
        with self._usable():
            await asyncio.to_thread(_rename, _draft(file), file)

    async def size(self, path: str) -> int | None:
        with self._usable(), suppress(FileNotFoundError):
            return (self._root / path).stat().st_size
        return None

    async def read(self, path: str, start: int, stop: int) -> AsyncIterator[bytes]:
        try:
            file = (self._root / path).open("rb")
        except FileNotFoundError:
            raise MissingError(path, self.label) from None
        with file:
            file.seek(start)
            while start < stop:
                piece = await asyncio.to_thread(file.read, min(PIECE, stop - start))
                if not piece:
                    raise MissingError(path, self.label)
                start += len(piece)
                yield piece

    async def remove(self, path: str) -> None:
        file = self._root / path
        with self._usable():
            for one in (file, _draft(file)):
                await asyncio.to_thread(one.unlink, missing_ok=True)

    async def probe(self) -> None:
        # The folder is created with the first archive.
        with self._usable(), suppress(FileNotFoundError):
            await asyncio.to_thread(os.listdir, self._root)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(self._root, "an archive") from error
            raise UnavailableError(
                msg(
                    "The archives in {label} cannot be used: {strerror}.",
                    label=self.label,
                    strerror=error.strerror,
                ),
                remedy=msg("See that archives.base_path is a folder that Hasat may use."),
            ) from error


def _draft(file: Path) -> Path:
    return file.with_name(f".{file.name}.part")


def _rename(draft: Path, file: Path) -> None:
    draft.replace(file)
    # The new name must survive a power failure before the archive is announced.
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
