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
from hasat.messages import Language, language_of_environment
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
    from hasat.web.story import WORDS

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
    language = language_of_environment(os.environ)
    words = WORDS[language]
    lock = _lock(home, words)
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
    output.note(words["starting"])
    output.note(words["folder"].format(home=home))
    simulators = {"sim demo": ["sim", "demo", "--port", str(port), "--folder", str(home)]}

    async def begin(store: Store) -> None:
        announce(settings, store, language)
        _print_scenes(settings, upstreams, language)
        await _load(store, settings, words)

    context.run_async(run_up(settings, flags, simulators, begin))


def _lock(home: Path, words: Mapping[str, str]) -> Path:
    """Lock the folder for this process and return the lock file, which contains the address."""
    lock = home / "demo.lock"
    if try_lock(lock) is None:
        where = lock.read_text("utf-8")
        raise ConflictError(
            words["running"].format(home=home, where=where), remedy=words["another"]
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


def _print_scenes(settings: Settings, upstreams: str, language: Language) -> None:
    """Print the scenes, and the commands to look at them."""
    from hasat.http.listener import local_address
    from hasat.web.story import WORDS, scene_states

    zone = ZoneInfo(settings.jobs.timezone)
    where = local_address(settings)
    words = WORDS[language]
    output.note("")
    output.note(words["look"].format(where=where))
    for state in scene_states(settings, datetime.now(UTC)):
        command = state.scene.look
        command = f"curl '{where}{command}'" if command.startswith("/") else command
        output.note(f"  {state.scene.title[language]} ({state.when(language, zone)})")
        output.note(f"    {command}")
    output.note(words["commands"].format(zone=zone.key))
    bin_folder = shlex.quote(str(Path(sys.executable).parent))
    home = shlex.quote(str(settings.home))
    output.note(f"  export HASAT_HOME={home} HASAT_CONFIG={home}/config PATH={bin_folder}:$PATH")
    output.note(f"{words['break']} curl -X PUT {upstreams}/gib/_sim/faults/half-list")
    output.note(f"{words['repair']} curl -X DELETE {upstreams}/gib/_sim/faults/half-list")
    output.note("")


async def _load(store: Store, settings: Settings, words: Mapping[str, str]) -> None:
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
    with _bars(expected, words) as show:
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
            f"The scan of the town ended as {scan.outcome}; see `hasat jobs show {scan.id}`. "
            "The next start resumes it."
        )
    loaded = ", ".join(f"{count} {words[name]}" for name, count in counts.items())
    output.note(words["loaded"].format(loaded=loaded))


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
    expected: Mapping[str, int], words: Mapping[str, str]
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
        ids = {name: bars.add_task(words[name], total=total) for name, total in expected.items()}

        def show(counts: Mapping[str, int]) -> None:
            for name, count in counts.items():
                bars.update(ids[name], completed=count)

        yield show
