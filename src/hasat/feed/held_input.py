"""The input of a held run: stored until the decision, verified before use.

With an object store (`archives.provider` S3) every machine can load it. Otherwise it is in a
private folder of HASAT_HOME, and only the machine that stored it can.
"""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hasat.errors import ConflictError
from hasat.feed.archive import Storage, storage_of
from hasat.feed.archive.storage import Folder, MissingError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store.home import machine_of

_REJECT = msg("Reject the held run; the next run reads its input again.")


class ChangedInputError(ConflictError):
    """The stored input is not what was held."""

    code = "held-input-changed"


@dataclass(frozen=True)
class HeldInput:
    """A stored file; `machine` is the only one that can load it, None where every machine can."""

    path: str
    sha256: bytes
    size: int
    machine: str | None

    def is_at(self, settings: Settings) -> bool:
        """Whether this machine can load it."""
        return self.machine is None or self.machine == machine_of(settings.home)


@asynccontextmanager
async def input_files(
    settings: Settings, run: int, inputs: Mapping[str, Path | bytes]
) -> AsyncIterator[dict[str, Path]]:
    """Provide the input of a run that is about to be held, all of it as files."""
    folder = settings.home / "held" / f"run-{run}"
    contents = {name: one for name, one in inputs.items() if isinstance(one, bytes)}
    if contents:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
    files = {name: one for name, one in inputs.items() if isinstance(one, Path)}
    try:
        for name, content in contents.items():
            files[name] = folder / name
            files[name].touch(0o600)
            await asyncio.to_thread(files[name].write_bytes, content)
        yield files
    finally:
        if contents:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def describe_input(
    settings: Settings, source: str, run: int, name: str, file: Path
) -> HeldInput:
    """Return where a file would be stored, so that the caller can record that first."""
    sha256 = await asyncio.to_thread(_sha256, file)
    shared = settings.archives.provider == "S3"
    return HeldInput(
        f"held/{source}/{run}-{name}-{sha256.hex()}",
        sha256,
        file.stat().st_size,
        None if shared else machine_of(settings.home),
    )


async def store_input(settings: Settings, held: HeldInput, file: Path) -> None:
    """Store a file under the description made of it: all of it or nothing."""
    storage = _storage(settings, held)
    draft = storage.draft(held.path)
    draft.unlink(missing_ok=True)
    draft.touch(0o600)
    await asyncio.to_thread(shutil.copyfile, file, draft)
    if await asyncio.to_thread(_sha256, draft) != held.sha256:
        raise ChangedInputError(msg("{file} changed while it was stored.", file=file.name))
    await storage.publish(held.path)


@asynccontextmanager
async def loaded_input(
    settings: Settings, inputs: Mapping[str, HeldInput], run: int
) -> AsyncIterator[dict[str, Path]]:
    """Load input for a run: private copies of verified content, removed at the end."""
    folder = settings.home / "held" / f"run-{run}"
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield {name: await _load(settings, name, one, folder) for name, one in inputs.items()}
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def remove_input(settings: Settings, held: HeldInput) -> None:
    """Remove a stored file and what an interrupted `store_input` left of it."""
    await _storage(settings, held).remove(held.path)


async def _load(settings: Settings, name: str, held: HeldInput, folder: Path) -> Path:
    copy = folder / name
    copy.touch(0o600)
    try:
        is_same = await _copy(_storage(settings, held), held, copy)
    except MissingError:
        raise ChangedInputError(
            msg(
                "The stored input {name} is gone: {path} does not exist.", name=name, path=held.path
            ),
            remedy=_REJECT,
        ) from None
    if not is_same:
        raise ChangedInputError(
            msg("The stored input {name} is not what was held: its SHA-256 differs.", name=name),
            remedy=_REJECT,
        )
    return copy


async def _copy(storage: Storage, held: HeldInput, copy: Path) -> bool:
    """Copy stored input, and return whether it is what was held."""
    digest = hashlib.sha256()
    # A longer file with the same beginning is a different file.
    size = await storage.size(held.path)
    with copy.open("wb") as file:
        async for piece in storage.read(held.path, 0, held.size):
            await asyncio.to_thread(file.write, piece)
            digest.update(piece)
    return (digest.digest(), size) == (held.sha256, held.size)


def _storage(settings: Settings, held: HeldInput) -> Storage:
    return storage_of(settings) if held.machine is None else Folder(settings.home)


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
