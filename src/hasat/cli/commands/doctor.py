"""`hasat doctor`: check everything that a start needs; each finding has a remedy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import typer
from rich.text import Text

from hasat.api import diagnostics
from hasat.api.diagnostics import Finding, Grade
from hasat.console import context, output
from hasat.errors import HasatError, SettingsError
from hasat.messages import msg
from hasat.settings import Settings

_MARKS: dict[Grade, tuple[str, str]] = {
    "ok": ("ok  ", "green"),
    "warning": ("WARN", "yellow"),
    "failure": ("FAIL", "red"),
}


def doctor(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Check everything that a start needs; each finding has a remedy.

    Exits 1 if something prevents a start.

    Examples: `hasat doctor` · `hasat doctor --json`
    """
    found = context.run_async(_examine(ctx))
    output.emit([asdict(one) for one in found], json=json, human=lambda: _render(found))
    if any(finding.grade == "failure" for finding in found):
        raise typer.Exit(1)


async def _examine(ctx: typer.Context) -> list[Finding]:
    """Return all findings; checks that depend on a failed one are left out."""
    found = [diagnostics.check_python()]
    try:
        settings = context.get_settings(ctx)
    except SettingsError as error:
        return [*found, Finding("settings", "failure", error.message, error.remedy)]
    found += diagnostics.check_machine(settings)
    home = next(one for one in found if one.check == "home")
    if home.grade == "failure" and settings.database.url is None:
        return found
    for check in (_jobs, _port, _database):
        found += await _run_check(check, settings)
    return found


async def _jobs(settings: Settings) -> Finding:
    from hasat.console.runtime import build_catalogue

    return diagnostics.check_jobs(build_catalogue(settings), settings)


async def _port(settings: Settings) -> Finding:
    from hasat.http.listener import check_port_free, local_address

    address = local_address(settings)
    try:
        check_port_free(settings)
    except HasatError as error:
        if await _is_hasat(address):
            return Finding(
                "port", "ok", msg("Hasat is running already at {address}", address=address)
            )
        return Finding("port", "failure", error.message, error.remedy)
    return Finding("port", "ok", msg("{address} is free", address=address))


async def _database(settings: Settings) -> list[Finding]:
    from hasat.console.runtime import open_migrated_store
    from hasat.source.installed import all_sources
    from hasat.store import has_database

    if not has_database(settings):
        return [
            Finding(
                "database",
                "warning",
                msg("There is no database in {home}.", home=settings.home),
                msg("Check --home or HASAT_HOME. `hasat up` creates a database there."),
            )
        ]
    async with open_migrated_store(settings) as store:
        return await diagnostics.check_database(store, settings, all_sources())


async def _run_check(
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
            response = await client.get(f"{address}/healthz")
            return response.status_code == 200 and response.json() == {"status": "alive"}
    except (httpx2.HTTPError, TimeoutError, ValueError):
        return False


def _render(found: list[Finding]) -> Text:
    text = Text()
    for finding in found:
        mark, colour = _MARKS[finding.grade]
        text.append(mark, style=colour)
        text.append(f"  {finding.check:<9} {output.localize(finding.message)}\n")
        if finding.remedy:
            text.append(f"{'':16}{output.localize(finding.remedy)}\n", style="italic")
    text.rstrip()
    return text
