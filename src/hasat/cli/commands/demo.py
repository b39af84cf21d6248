"""`hasat demo`: all of Hasat with simulated upstreams that follow a script."""

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import typer
import yaml
from rich.progress import BarColumn, Progress, TextColumn

from hasat.cli.commands.processes import announce, run_up
from hasat.console import context, output
from hasat.console.runtime import build_catalogue
from hasat.errors import ConflictError, UnavailableError
from hasat.jobs import Run
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.settings.environment import without_settings
from hasat.store import Store
from hasat.store.locks import try_lock

if TYPE_CHECKING:
    from hasat.demo import DemoFolder, Loading

# Other variables are ignored, so that the demo never uses the database of a real installation.
_ENVIRONMENT = (
    "HASAT_PORT",
    "HASAT_LANG",
    "HASAT_LOG_LEVEL",
    "HASAT_LOG_FORMAT",
    "HASAT_POSTGRES_BIN",
)
_SETTINGS_FILE = "hasat.yaml"
_POLL_SECONDS = 1.0
# A stopped scan resumes at the next start, so there is no need to wait for it.
_DRAIN_SECONDS = 3


def demo(ctx: typer.Context) -> None:
    """Run Hasat with simulated upstreams; all data is in the folder .demo.

    No real upstream is called: simulators on this machine publish changing lists, a town to scan
    and a match day. Ctrl-C ends the demo, the next start resumes it, `make clean` removes it.

    Examples: `hasat demo` · `hasat --home OTHER --set serve.port=9000 demo`
    """
    from hasat.demo import DemoFolder
    from hasat.demo.upstreams import DemoProgress, demo_settings
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
    progress = DemoProgress.read(home)
    progress.write(home)
    folder = DemoFolder(home, now - progress.elapsed, now)
    _write_settings(home / "config", demo_settings(upstreams, folder), folder, upstreams)
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
        settings = yaml.safe_load((home / "config" / _SETTINGS_FILE).read_text("utf-8"))
        earlier = urlsplit(settings["webhooks"]["endpoints"][0]["url"]).port or 0
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        earlier = 0
    with contextlib.suppress(UnavailableError), bind("127.0.0.1", earlier) as free:
        return int(free.getsockname()[1])
    with bind("127.0.0.1", 0) as free:
        return int(free.getsockname()[1])


def _write_settings(
    path: Path, upstreams: Mapping[str, Any], folder: "DemoFolder", address: str
) -> None:
    """Write the settings of the demo for its child processes and for other commands."""
    from hasat.demo import demo_parts

    path.mkdir(parents=True, exist_ok=True)
    schedule = {
        name: dict(job) for part in demo_parts().values() for name, job in part.schedule.items()
    }
    settings = {
        **upstreams,
        "demo": {
            "began": folder.began.isoformat(timespec="seconds"),
            "started": folder.now.isoformat(timespec="seconds"),
            "upstreams": address,
        },
        "jobs": {"schedule": schedule, "drain_seconds": _DRAIN_SECONDS},
    }
    text = yaml.safe_dump(settings, sort_keys=False)
    file = path / _SETTINGS_FILE
    file.touch(mode=0o600)
    file.write_text(f"# Overwritten by every `hasat demo`.\n{text}", "utf-8")


def _print_scenes(settings: Settings, upstreams: str) -> None:
    """Print the scenes, and the commands to look at them."""
    from hasat.demo import demo_parts
    from hasat.demo.scenes import schedule_scenes
    from hasat.http.listener import local_address

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
    for name, part in demo_parts().items():
        if part.fault_to_try is not None:
            fault = f"{upstreams}/{name}/_sim/faults/{part.fault_to_try}"
            output.note(msg("Break something: {command}", command=f"curl -X PUT {fault}"))
            output.note(msg("Repair it: {command}", command=f"curl -X DELETE {fault}"))
    output.note("")


async def _load(store: Store, settings: Settings) -> None:
    """Queue the first runs and show their progress."""
    from hasat.demo import demo_parts
    from hasat.jobs.connection import CONNECTION_ERRORS
    from hasat.jobs.queue import queue_run
    from hasat.jobs.runs import get_run

    catalogue = build_catalogue(settings)
    loading = {name: part.loading for name, part in demo_parts().items()}
    runs: dict[str, Run] = {}
    for name, one in loading.items():
        if (run := await one.start(store, settings, catalogue)) is not None:
            runs[name] = run
    counts = dict.fromkeys(loading, 0)
    later = {name: [*one.then] for name, one in loading.items()}

    def is_loaded(name: str) -> bool:
        return runs[name].state == "finished" if name in runs else counts[name] > 0

    with _bars(loading) as show:
        while not all(map(is_loaded, loading)):
            await asyncio.sleep(_POLL_SECONDS)
            # The demo survives a restart of its database.
            with contextlib.suppress(*CONNECTION_ERRORS):
                counts = await _count_records(store, loading)
                runs = {name: await get_run(store, run.id) for name, run in runs.items()}
                for name, jobs in later.items():
                    while jobs and counts[name] == loading[name].expected:
                        await queue_run(store, catalogue, jobs.pop(0))
            show(counts)
    for run in runs.values():
        if run.outcome != "done":
            output.note(
                msg(
                    "The run of {job} ended as {outcome}; see `hasat jobs show {run}`. "
                    "The next start resumes it.",
                    job=run.job,
                    outcome=run.outcome,
                    run=run.id,
                )
            )
    loaded = [
        msg("{count} {label}", count=counts[name], label=one.label) for name, one in loading.items()
    ]
    output.note(
        msg("Loaded {records}. From now on only changes are loaded.", records=join(loaded, ", "))
    )


async def _count_records(store: Store, loading: "Mapping[str, Loading]") -> dict[str, int]:
    counts = {}
    async with store.connection() as conn:
        for name, one in loading.items():
            row = await (await conn.execute(one.count)).fetchone()
            assert row is not None
            counts[name] = int(row[0])
    return counts


@contextmanager
def _bars(loading: "Mapping[str, Loading]") -> Iterator[Callable[[Mapping[str, int]], None]]:
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
        ids = {
            name: bars.add_task(output.localize(one.label), total=one.expected)
            for name, one in loading.items()
        }

        def show(counts: Mapping[str, int]) -> None:
            for name, count in counts.items():
                bars.update(ids[name], completed=count)

        yield show
