"""The files of the lists: downloads within GIB's budget, and local files used in place.

Downloads are stored as raw responses by its content, for `gib.raw_retention_days`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hasat.errors import UsageError
from hasat.feed.raw import RawRequest, expire_responses, store_file
from hasat.fetch.downloads import Download, Downloader, invalidate_download
from hasat.jobs import RunContext
from hasat.messages import msg
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.settings import GibSettings


async def fetch_list(
    downloader: Downloader,
    source: str,
    name: str,
    folder: Path,
    *,
    timeout_seconds: float,
    trusted: bool = True,
    private_networks: Sequence[str] = (),
) -> Path:
    """Return a list as a local file; a download is stored in `folder` and reused if unchanged.

    Without `trusted`, `source` comes from a remote caller and must not be a file.
    """
    if not is_download(source):
        if not trusted:
            raise UsageError(
                msg("The {name} list of a queued run must have an http(s) address.", name=name),
                remedy=msg("Only `hasat gib sync` on the command line reads files."),
            )
        return _local_file(source, name)
    file = await downloader.fetch(
        Download(
            source,
            list_file(name, folder),
            msg("The {box} list", box=name),
            timeout_seconds=timeout_seconds,
            timeout_setting="gib.download_timeout",
            trusted=trusted,
            private_networks=private_networks,
        )
    )
    return file.path


def is_download(source: str) -> bool:
    """Return whether a list comes from an upstream and not from a local file."""
    return "://" in source and not source.startswith("file://")


async def store_raw_list(context: RunContext, name: str, source: str, file: Path) -> int:
    """Store a downloaded list verbatim; return its number in raw.response."""
    request = RawRequest(SOURCE, raw_name(name), source.partition("?")[0])
    return await store_file(context.store, context.settings, request, file, run=context.run_id)


async def expire_raw_lists(context: RunContext, names: Iterable[str]) -> None:
    """Delete raw lists past their retention; the one that was applied last stays."""
    days = context.settings.section(GibSettings).raw_retention_days
    for name in names:
        await expire_responses(context.store, context.settings, raw_name(name), days)


def raw_name(name: str) -> str:
    """Return the name of a list in raw.response: both datasets are made of both lists."""
    return f"{SOURCE}_{name.lower()}_list"


def list_file(name: str, folder: Path) -> Path:
    """Return where the download of a list is stored."""
    return folder / f"{name.lower()}.zip"


def invalidate_list(name: str, folder: Path) -> None:
    """Have the next run fetch a list again, because the download with these headers is damaged."""
    invalidate_download(list_file(name, folder))


def _local_file(source: str, name: str) -> Path:
    path = Path(unquote(urlsplit(source).path) if source.startswith("file://") else source)
    if not path.is_file():
        raise UsageError(
            msg("The file {path} for the {name} list does not exist.", path=path, name=name),
            remedy=msg("Give a ZIP or XML file, or an http(s) address."),
        )
    return path.absolute()
