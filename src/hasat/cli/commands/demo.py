"""`hasat demo`: all of Hasat with simulated upstreams that follow a script."""

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import typer
import yaml
from rich.progress import BarColumn, Progress, TextColumn

from hasat.cli import context, output
from hasat.cli.commands.processes import announce, run_up
from hasat.cli.runtime import build_catalogue
from hasat.errors import ConflictError, UnavailableError
from hasat.jobs import Catalogue, Run
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.environment import without_settings
from hasat.store import Store
from hasat.store.locks import try_lock

# Other variables are ignored, so that the demo never uses the database of a real installation.
_ENVIRONMENT = (
    "HASAT_PORT",
    "HASAT_LANG",
    "HASAT_LOG_LEVEL",
    "HASAT_LOG_FORMAT",
    "HASAT_POSTGRES_BIN",
)
# A match takes two minutes here, so hourly jobs run every minute.
_FREQUENT_JOBS = (
    "gib_sync",
    "daily_fixtures_by_date",
    "fixture_details_recent_finalize",
    "daily_standings",
)
_EVERY_MINUTE = "* * * * *"
_HOURS_UNTIL_PROBABLY_OVER = 0.05
_FIRST_JOBS = ("gib_sync", "fixtures_backfill_league_season", "standings_backfill_league_season")
_JOBS_AFTER_MATCHES = ("injuries_hourly", "top_scorers_daily", "team_statistics_refresh")
_POLL_SECONDS = 1.0
# A stopped scan resumes at the next start, so there is no need to wait for it.
_DRAIN_SECONDS = 3


def demo(ctx: typer.Context) -> None:
    """Run Hasat with simulated upstreams; all data is in the folder .demo.

    No real upstream is called: simulators on this machine publish changing lists, a town to scan
    and a match day. Ctrl-C ends the demo, the next start resumes it, `make clean` removes it.

    Examples: `hasat demo` · `hasat --home OTHER --set serve.port=9000 demo`
    """
    from hasat.demo import DemoProgress, demo_settings, workers_file
    from hasat.http.listener import local_address

    flags = context.get_flags(ctx)
    flags.setdefault("home", str(Path(".demo").resolve()))
    # The demo prints its own progress; logs would hide it.
    if "HASAT_LOG_LEVEL" not in os.environ:
        flags.setdefault("log.level", "WARNING")
    home = Path(flags["home"])
    flags["config"] = str(home / "config")
    environment = without_settings(os.environ, _ENVIRONMENT)
    os.environ.clear()
    os.environ.update(environment)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = _lock(home)
    port = _port(home)
    upstreams = f"http://127.0.0.1:{port}"
    now = datetime.now(UTC)
    progress = DemoProgress.read(home, now)
    progress.write(home)
    (home / "workers.json").write_text(json.dumps(workers_file(upstreams)), "utf-8")
    _write_settings(
        home / "config", demo_settings(upstreams, home, progress), now, progress.elapsed
    )
    settings = context.get_settings(ctx)
    lock.write_text(local_address(settings), "utf-8")
    output.note(msg("Starting the demo: PostgreSQL, the API, a worker and simulated upstreams."))
    output.note(msg("The data is in {home}; no real upstream is called.", home=home))
    simulators = {"sim demo": ["sim", "demo", "--port", str(port), "--folder", str(home)]}

    async def begin(store: Store) -> None:
        announce(settings, store)
        _print_scenes(settings, upstreams)
        await _load(store, settings)

    context.run_async(run_up(settings, flags, simulators, begin))


def _lock(home: Path) -> Path:
    """Lock the folder for this process and return the lock file, which contains the address."""
    lock = home / "demo.lock"
    if try_lock(lock) is None:
        where = lock.read_text("utf-8")
        raise ConflictError(
            msg("The demo in {home} is already running at {where}.", home=home, where=where),
            remedy=msg(
                "Open that page, or end it with Ctrl-C where it was started. A second demo needs "
                "its own folder and port: hasat --home OTHER --set serve.port=9000 demo"
            ),
        )
    return lock


def _port(home: Path) -> int:
    """Return the port of the simulators: the one of earlier starts, which budgets depend on."""
    from hasat.http.listener import bind

    try:
        workers = json.loads((home / "workers.json").read_text("utf-8"))["workers"]
        earlier = urlsplit(workers[0]["url"]).port or 0
    except (OSError, ValueError, LookupError):
        earlier = 0
    with contextlib.suppress(UnavailableError), bind("127.0.0.1", earlier) as free:
        return int(free.getsockname()[1])
    with bind("127.0.0.1", 0) as free:
        return int(free.getsockname()[1])


def _write_settings(
    folder: Path, upstreams: Mapping[str, Any], now: datetime, elapsed: timedelta
) -> None:
    """Write the settings of the demo for its child processes and for other commands."""
    folder.mkdir(parents=True, exist_ok=True)
    hours = {
        "threshold_hours": _HOURS_UNTIL_PROBABLY_OVER,
        "safety_lag_hours": _HOURS_UNTIL_PROBABLY_OVER,
    }
    schedule: dict[str, Any] = {name: {"cron": _EVERY_MINUTE} for name in _FREQUENT_JOBS}
    schedule["auto_finish_stale_fixtures"] = {"cron": _EVERY_MINUTE, "params": hours}
    schedule["daily_standings"]["params"] = {"at_once": True}
    settings = {
        **upstreams,
        "demo": {
            "began": (now - elapsed).isoformat(timespec="seconds"),
            "started": now.isoformat(timespec="seconds"),
        },
        "jobs": {"schedule": schedule, "drain_seconds": _DRAIN_SECONDS},
    }
    text = yaml.safe_dump(settings, sort_keys=False)
    path = folder / "hasat.yaml"
    path.touch(mode=0o600)
    path.write_text(f"# Overwritten by every `hasat demo`.\n{text}", "utf-8")


def _print_scenes(settings: Settings, upstreams: str) -> None:
    """Print the scenes, and the commands to look at them."""
    from hasat.http.listener import local_address
    from hasat.web.demo_scenes import schedule_scenes

    zone = ZoneInfo(settings.jobs.timezone)
    where = local_address(settings)
    output.note("")
    output.note(msg("What to look at, at {where} or in a terminal:", where=where))
    for one in schedule_scenes(settings, datetime.now(UTC)):
        link = one.scene.link
        command = f"curl '{where}{link}'" if link.startswith("/") else link
        title, when = output.localize(one.scene.title), output.localize(one.when(zone))
        output.note(f"  {title} ({when})")
        output.note(f"    {command}")
    output.note(msg("Times are in {zone}. Point the command line at the demo:", zone=zone.key))
    bin_folder = shlex.quote(str(Path(sys.executable).parent))
    home = shlex.quote(str(settings.home))
    output.note(f"  export HASAT_HOME={home} HASAT_CONFIG={home}/config PATH={bin_folder}:$PATH")
    fault = f"{upstreams}/gib/_sim/faults/half-list"
    output.note(msg("Break something: {command}", command=f"curl -X PUT {fault}"))
    output.note(msg("Repair it: {command}", command=f"curl -X DELETE {fault}"))
    output.note("")


async def _load(store: Store, settings: Settings) -> None:
    """Queue the first runs and show their progress."""
    from hasat.demo import MATCHES, PARCELS, TAXPAYERS
    from hasat.jobs.connection import CONNECTION_ERRORS
    from hasat.jobs.queue import queue_run
    from hasat.jobs.runs import get_run

    catalogue = build_catalogue(settings)
    scan = await _scan(store, settings, catalogue)
    for name in _FIRST_JOBS:
        await queue_run(store, catalogue, name)
    expected = {"taxpayers": TAXPAYERS, "parcels": PARCELS, "matches": MATCHES}
    counts = dict.fromkeys(expected, 0)
    later = [*_JOBS_AFTER_MATCHES]
    with _bars(expected) as show:
        while not (counts["taxpayers"] and counts["matches"] and scan.state == "finished"):
            await asyncio.sleep(_POLL_SECONDS)
            # The demo survives a restart of its database.
            with contextlib.suppress(*CONNECTION_ERRORS):
                counts, scan = await _count_records(store), await get_run(store, scan.id)
                while later and counts["matches"] == MATCHES:
                    await queue_run(store, catalogue, later.pop())
            show(counts)
    if scan.outcome != "done":
        output.note(
            msg(
                "The scan of the town ended as {outcome}; see `hasat jobs show {run}`. "
                "The next start resumes it.",
                outcome=scan.outcome,
                run=scan.id,
            )
        )
    output.note(
        msg(
            "Loaded {taxpayers} taxpayers, {parcels} parcels, {matches} matches. "
            "From now on only changes are loaded.",
            **counts,
        )
    )


async def _scan(store: Store, settings: Settings, catalogue: Catalogue) -> Run:
    """Return the run that scans the town, from an earlier start if that did not fail."""
    from hasat.demo import AREA
    from hasat.jobs.queue import queue_run
    from hasat.jobs.runs import list_runs
    from hasat.sources.tkgm.source import NAME

    town = {"area": json.loads((settings.home / AREA).read_text("utf-8"))}
    for earlier in await list_runs(store, job=NAME):
        if earlier.params == town and earlier.outcome in {None, "done"}:
            return earlier
    return await queue_run(store, catalogue, NAME, town)


async def _count_records(store: Store) -> dict[str, int]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT (SELECT count(*) FROM core.einvoice),"
            " (SELECT count(DISTINCT key) FROM tkgm.told),"
            " (SELECT count(*) FROM core.fixtures)"
        )
        row = await cursor.fetchone()
    assert row is not None
    return dict(zip(("taxpayers", "parcels", "matches"), row, strict=True))


@contextmanager
def _bars(
    expected: Mapping[str, int],
) -> Iterator[Callable[[Mapping[str, int]], None]]:
    """Show one bar for each count and yield their update function; no bars without a terminal."""
    if not output.is_terminal():
        yield lambda counts: None
        return
    columns = (
        TextColumn("  {task.description:<10}"),
        BarColumn(),
        TextColumn("{task.completed:,}"),
    )
    with Progress(*columns, console=output.stderr()) as bars:
        labels = {
            "taxpayers": msg("taxpayers"),
            "parcels": msg("parcels"),
            "matches": msg("matches"),
        }
        ids = {
            name: bars.add_task(output.localize(labels[name]), total=total)
            for name, total in expected.items()
        }

        def show(counts: Mapping[str, int]) -> None:
            for name, count in counts.items():
                bars.update(ids[name], completed=count)

        yield show
