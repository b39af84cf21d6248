"""Checks of `hasat doctor` and its page."""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from hasat.api.authentication import check_authentication_configured
from hasat.api.health import source_report
from hasat.deliver.jetstream_state import REMEDY, describe_degraded, load_stream_states
from hasat.errors import HasatError
from hasat.extras import EXTRAS, explain_install, explain_missing, is_installed
from hasat.jobs import Catalogue
from hasat.jobs.recovery import find_blockages
from hasat.messages import join, msg
from hasat.receipts.ledger import BrokenChainError, listed_keys, verify_chain
from hasat.settings import Settings
from hasat.source import Source, ToolContext
from hasat.source.installed import (
    active_sources,
    installed_sources,
    is_active,
    missing_configuration,
    missing_extras,
)
from hasat.source.parts import broken_parts, part_problem, settings_problem
from hasat.store import Store
from hasat.store.home import free_bytes, is_shared, mount_of
from hasat.telemetry import SWITCHES, is_wanted

Grade = Literal["ok", "warning", "failure"]

_CHECKED_RECEIPTS = 1_000
_MIN_FREE_BYTES = 2_000_000_000
_MAX_SKEW_SECONDS = 5.0
_SOURCE_REMEDY = msg("Update or uninstall its package.")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    grade: Grade
    message: str
    remedy: str | None = None


def check_machine(settings: Settings) -> list[Finding]:
    """Check the settings, the home folder and the disks."""
    return [
        _settings(settings),
        *_broken_sources(settings),
        *_extras(settings),
        _home(settings),
        *_disks(settings),
    ]


def _broken_sources(settings: Settings) -> list[Finding]:
    """Report sources that cannot be loaded, and parts of the others."""
    problems = [
        *(
            msg("The source {name} cannot be loaded: {reason}", name=one.name, reason=one.reason)
            for one in installed_sources().broken
        ),
        *(problem for source in active_sources(settings) for problem in broken_parts(source)),
    ]
    return [Finding("source", "failure", problem, _SOURCE_REMEDY) for problem in problems]


def _extras(settings: Settings) -> list[Finding]:
    """Name the extras that are installed, and each that the settings need but is not."""
    sources = {source.name for source in installed_sources().sources}
    found = [
        # A source without its extra is off; a setting without it prevents the start.
        Finding(
            "extras",
            "warning" if what in sources else "failure",
            explain_missing(extra, what),
            explain_install(extra),
        )
        for what, extra in missing_extras(settings).items()
    ]
    if is_wanted() and not is_installed("otel"):
        # Not a setting of Hasat, and often set for every process of a machine.
        what = ", ".join(name for name in SWITCHES if name in os.environ)
        missing = explain_missing("otel", what)
        found.append(Finding("extras", "warning", missing, explain_install("otel")))
    parts = [
        msg("{extra} (adds {adds})", extra=extra.name, adds=msg(extra.adds))
        for extra in EXTRAS.values()
        if not is_installed(extra.name)
    ]
    if not parts:
        return [*found, Finding("extras", "ok", msg("All extras are installed"))]
    named = msg("Not installed: {extras}", extras=join(parts, "; "))
    return [*found, Finding("extras", "ok", named)]


def check_jobs(catalogue: Catalogue, settings: Settings) -> Finding:
    """Count the jobs, and report entries of the schedule without an effect."""
    enabled = sum(job.enabled for job in catalogue)
    counted = msg(
        "{count} jobs, {enabled} enabled, times in {timezone}",
        count=len(catalogue),
        enabled=enabled,
        timezone=settings.jobs.timezone,
    )
    if catalogue.remarks:
        return Finding("jobs", "warning", join([f"{counted}.", *catalogue.remarks]))
    return Finding("jobs", "ok", counted)


async def check_database(
    store: Store, settings: Settings, sources: Sequence[Source]
) -> list[Finding]:
    """Check the database, its clock, locks, authentication, receipts, NATS and the sources."""
    async with store.connection() as conn:
        row = await (await conn.execute("SHOW server_version")).fetchone()
    before = datetime.now(UTC)
    skew = abs((await store.now() - before).total_seconds())
    kind = msg("embedded") if store.embedded else msg("given")
    version = row[0] if row else "?"
    found = [
        Finding(
            "database",
            "ok",
            msg(
                "PostgreSQL {version}, {kind}: {store}; migrated",
                version=version,
                kind=kind,
                store=store.label,
            ),
        )
    ]
    if skew > _MAX_SKEW_SECONDS:
        found.append(
            Finding(
                "clock",
                "warning",
                msg(
                    "The clocks of this machine and the database differ by {skew:.0f} seconds.",
                    skew=skew,
                ),
                msg("Jobs use the clock of the database; synchronize both with NTP."),
            )
        )
    else:
        found.append(
            Finding("clock", "ok", msg("The clocks of this machine and the database agree"))
        )
    try:
        await check_authentication_configured(settings, store)
    except HasatError as error:
        found.append(Finding("access", "failure", error.message, error.remedy))
    else:
        found.append(
            Finding(
                "access",
                "ok",
                msg("Authentication is sufficient for {host}", host=settings.serve.host),
            )
        )
    async with store.connection() as conn:
        blockages = await find_blockages(conn)
    if blockages:
        found.append(Finding("locks", "warning", str(blockages), blockages.remedy))
    else:
        found.append(Finding("locks", "ok", msg("No session is stuck and no job is blocked")))
    found.append(await _receipts(store))
    if streams := await load_stream_states(store, settings):
        if degraded := describe_degraded(streams):
            found.append(Finding("nats", "warning", degraded, REMEDY))
        else:
            found.append(Finding("nats", "ok", msg("NATS is up to date")))
    for source in sources:
        if is_active(source, settings) and (problem := settings_problem(source, settings)):
            found.append(Finding(source.name, "failure", problem, _SOURCE_REMEDY))
            continue
        if lacking := missing_configuration(source, settings):
            found.append(Finding(source.name, "ok", msg("Not configured: {why}", why=lacking)))
            continue
        report = await source_report(source, store, settings)
        remarks = report.get("remarks", [])
        context = ToolContext(store, settings, Catalogue.of(source.all_jobs, settings))
        if problem := part_problem(source, msg("tools"), partial(source.tools, context)):
            found.append(Finding(source.name, "failure", problem, _SOURCE_REMEDY))
        found += [Finding(source.name, "warning", text) for text in remarks]
        if not remarks:
            found.append(Finding(source.name, "ok", await _records(store, source)))
    return found


async def _records(store: Store, source: Source) -> str:
    names = [dataset.name for dataset in source.datasets]
    query = "SELECT coalesce(sum(records), 0)::bigint FROM feed.head WHERE dataset = ANY (%s)"
    async with store.connection() as conn:
        row = await (await conn.execute(query, [names])).fetchone()
    return msg(
        "Configured: {count:,} records in {datasets} datasets",
        count=row[0] if row else 0,
        datasets=len(names),
    )


async def _receipts(store: Store) -> Finding:
    try:
        count = await verify_chain(store, await listed_keys(store), newest=_CHECKED_RECEIPTS)
    except BrokenChainError as error:
        return Finding(
            "receipts",
            "failure",
            error.message,
            msg("Restore it from a backup; `hasat receipt check` checks all of them."),
        )
    if not count:
        return Finding("receipts", "ok", msg("There are no receipts"))
    return Finding("receipts", "ok", msg("The newest {count:,} receipts are intact", count=count))


def check_python() -> Finding:
    """Report the Python version."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        "python",
        "ok",
        msg("Python {version} at {executable}", version=version, executable=sys.executable),
    )


def _settings(settings: Settings) -> Finding:
    files = ", ".join(map(str, settings.files))
    read = msg("Files: {files}.", files=files) if files else msg("There are no files.")
    if settings.remarks:
        return Finding("settings", "warning", join([read, *settings.remarks]))
    return Finding("settings", "ok", join([read, msg("No problems.")]))


def _home(settings: Settings) -> Finding:
    home = settings.home
    nearest = next(path for path in (home, *home.parents) if path.exists())
    if not nearest.is_dir() or not _writable(nearest):
        return Finding(
            "home",
            "failure",
            msg("This user cannot write to {nearest}.", nearest=nearest),
            msg("Choose another folder with HASAT_HOME or --home, or change its owner."),
        )
    if home.is_dir() and is_shared(home):
        return Finding(
            "home",
            "warning",
            msg("The data folder {home} is shared with other users or programs.", home=home),
            msg("Choose a separate folder with HASAT_HOME or --home."),
        )
    return Finding("home", "ok", msg("Data folder: {home}", home=home))


def _disks(settings: Settings) -> list[Finding]:
    """Check the free space of each file system that Hasat writes to."""
    uses: dict[Path, list[str]] = {}
    for use, folder in disk_folders(settings).items():
        uses.setdefault(mount_of(folder), []).append(use)
    found = []
    for mount, named in uses.items():
        free = free_bytes(mount)
        message = msg(
            "{free:.1f} GB free on {mount} ({uses})",
            free=free / 1e9,
            mount=mount,
            uses=join(named, ", "),
        )
        if free < _MIN_FREE_BYTES:
            remedy = msg("Free some space: syncs and the database stop when this disk is full.")
            found.append(Finding("disk", "warning", message, remedy))
        else:
            found.append(Finding("disk", "ok", message))
    return found


def disk_folders(settings: Settings) -> dict[str, Path]:
    """Return the folders that Hasat writes to on this machine, by what they are for."""
    folders: dict[str, Path] = {msg("data"): settings.home}
    if settings.archives.provider == "FileSystem":
        folders[msg("archives")] = settings.home / settings.archives.base_path
    return {**folders, msg("temporary files"): Path(tempfile.gettempdir())}


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
