"""Archives in a folder of the file system."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hasat.errors import UnavailableError
from hasat.feed.archive.places import PIECE, MissingError
from hasat.messages import msg
from hasat.store.disk import disk_full, is_disk_full


class Folder:
    """Files are written beside their place and renamed, so that a name is always a whole file."""

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
        # It is made when the first archive is written.
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
    # The new name itself must survive a loss of power, before anybody is told of it.
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
