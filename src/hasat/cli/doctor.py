"""`hasat doctor`: everything a start needs, looked at one by one, each finding with its remedy."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import typer
from rich.text import Text

from hasat.cli import manners
from hasat.errors import HasatError, SettingsError
from hasat.settings import Settings

Grade = Literal["ok", "warning", "failure"]

_LEAST_FREE_BYTES = 2_000_000_000
_LARGEST_SKEW_SECONDS = 5.0
_MARKS: dict[Grade, tuple[str, str]] = {
    "ok": ("ok  ", "green"),
    "warning": ("look", "yellow"),
    "failure": ("FAIL", "red"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    grade: Grade
    message: str
    remedy: str | None = None


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(ctx: typer.Context, json: manners.JsonFlag = False) -> None:
    """Check everything a start needs; each finding comes with its remedy.

    Exits 1 if something would keep Hasat from starting.

    Examples: `hasat doctor` · `hasat doctor --json`
    """
    findings = manners.run_async(examine(ctx))
    manners.emit([asdict(f) for f in findings], json=json, human=lambda: _told(findings))
    if any(finding.grade == "failure" for finding in findings):
        raise typer.Exit(1)


async def examine(ctx: typer.Context) -> list[Finding]:
    """All findings; a check that cannot be made because an earlier one failed is left out."""
    findings = [_python()]
    try:
        settings = manners.settings_of(ctx)
    except SettingsError as error:
        return [*findings, Finding("settings", "failure", error.message, error.remedy)]
    findings += [_settings(settings), _home(settings), _disk(settings)]
    if findings[-2].grade == "failure" and settings.database.url is None:
        return findings
    for check in (_jobs, _port, _database):
        findings += await _careful(check, settings)
    return findings


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"Python {version} at {sys.executable}")


def _settings(settings: Settings) -> Finding:
    read = ", ".join(map(str, settings.files)) or "no files"
    if settings.remarks:
        return Finding("settings", "warning", f"Read {read}. {' '.join(settings.remarks)}")
    return Finding("settings", "ok", f"Read {read}; nothing is wrong.")


def _home(settings: Settings) -> Finding:
    home = settings.home
    nearest = next(path for path in (home, *home.parents) if path.exists())
    if not nearest.is_dir() or not _writable(nearest):
        return Finding(
            "home",
            "failure",
            f"{nearest} cannot be written by this user.",
            "Choose another folder with HASAT_HOME or --home, or change its owner.",
        )
    return Finding("home", "ok", f"Data lives in {home}")


def _disk(settings: Settings) -> Finding:
    nearest = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    told = f"{free / 1e9:.1f} GB free at {nearest}"
    if free < _LEAST_FREE_BYTES:
        remedy = "Free some space: a full disk stops the database."
        return Finding("disk", "warning", told, remedy)
    return Finding("disk", "ok", told)


async def _jobs(settings: Settings) -> Finding:
    from hasat.cli.house import catalogue_of

    catalogue = catalogue_of(settings)
    enabled = sum(job.enabled for job in catalogue)
    return Finding(
        "jobs", "ok", f"{len(catalogue)} jobs, {enabled} enabled, times in {settings.jobs.timezone}"
    )


async def _port(settings: Settings) -> Finding:
    from hasat.serve.listen import address_of, free_port_or_fail

    address = address_of(settings)
    try:
        free_port_or_fail(settings)
    except HasatError as error:
        if await _is_hasat(address):
            return Finding("port", "ok", f"Hasat is running already at {address}")
        return Finding("port", "failure", error.message, error.remedy)
    return Finding("port", "ok", f"{address} is free")


async def _database(settings: Settings) -> list[Finding]:
    from hasat.cli.house import open_house
    from hasat.serve import check_may_start
    from hasat.sources.registry import all_sources

    async with open_house(settings) as store:
        async with store.connection() as conn:
            row = await (await conn.execute("SHOW server_version")).fetchone()
        before = datetime.now(UTC)
        skew = abs((await store.now() - before).total_seconds())
        kind = "embedded" if store.embedded else "given"
        version = row[0] if row else "?"
        findings = [
            Finding("database", "ok", f"PostgreSQL {version}, {kind}: {store.label}; migrated")
        ]
        if skew > _LARGEST_SKEW_SECONDS:
            findings.append(
                Finding(
                    "clock",
                    "warning",
                    f"This machine's clock and the database's differ by {skew:.0f} seconds.",
                    "Jobs go by the database's clock; set both by NTP.",
                )
            )
        else:
            findings.append(
                Finding("clock", "ok", "This machine and the database agree on the time")
            )
        try:
            await check_may_start(settings, store)
        except HasatError as error:
            findings.append(Finding("access", "failure", error.message, error.remedy))
        else:
            findings.append(Finding("access", "ok", f"May listen on {settings.serve.host}"))
        for source in all_sources():
            report = {} if source.status is None else await source.status(store, settings)
            findings += [
                Finding(source.name, "warning", told) for told in report.get("remarks", [])
            ]
    return findings


async def _careful(
    check: Callable[[Settings], Awaitable[Finding | list[Finding]]], settings: Settings
) -> list[Finding]:
    try:
        found = await check(settings)
    except HasatError as error:
        name = check.__name__.lstrip("_")
        return [Finding(name, "failure", error.message, error.remedy)]
    return found if isinstance(found, list) else [found]


async def _is_hasat(address: str) -> bool:
    import httpx2

    try:
        async with asyncio.timeout(2), httpx2.AsyncClient() as client:
            answer = await client.get(f"{address}/healthz")
            return answer.status_code == 200 and answer.json() == {"status": "alive"}
    except (httpx2.HTTPError, TimeoutError, ValueError):
        return False


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _told(findings: list[Finding]) -> Text:
    text = Text()
    for finding in findings:
        mark, colour = _MARKS[finding.grade]
        text.append(mark, style=colour)
        text.append(f"  {finding.check:<9} {finding.message}\n")
        if finding.remedy:
            text.append(f"{'':16}{finding.remedy}\n", style="italic")
    text.rstrip()
    return text
