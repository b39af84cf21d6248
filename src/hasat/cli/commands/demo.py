"""`hasat demo`: the whole house beside simulated upstreams that tell a story."""

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
from typing import TYPE_CHECKING, Any
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
from hasat.settings import Settings
from hasat.settings.environment import without_settings
from hasat.store import Store
from hasat.store.locks import try_lock

if TYPE_CHECKING:
    from hasat.web.story import Language

# Where it listens and how it talks may be said by the environment, but nothing else: whoever tries
# the demo beside a real installation must not find it at work on that one's database.
_KEPT = ("HASAT_PORT", "HASAT_LOG_LEVEL", "HASAT_LOG_FORMAT", "HASAT_POSTGRES_BIN")
# A match takes two minutes here: what would be asked for by the hour is asked for by the minute.
_OFTEN = (
    "gib_sync",
    "daily_fixtures_by_date",
    "fixture_details_recent_finalize",
    "daily_standings",
)
_EVERY_MINUTE = "* * * * *"
_HOURS_UNTIL_PROBABLY_OVER = 0.05
_FIRST = ("gib_sync", "fixtures_backfill_league_season", "standings_backfill_league_season")
_ONCE_THERE_ARE_MATCHES = ("injuries_hourly", "top_scorers_daily", "team_statistics_refresh")
_LOOK_SECONDS = 1.0
# A scan that is stopped goes on at the next start: nobody waits for its end.
_DRAIN_SECONDS = 3


def demo(ctx: typer.Context) -> None:
    """Show Hasat at work in the folder .demo, without touching anything else.

    Everything runs on this machine; no upstream is called: simulated ones tell a story of lists
    that change, a town that is scanned and a match day. Ctrl-C ends it, the next start goes on
    where it was, `make clean` removes it.

    Examples: `hasat demo` · `hasat --home OTHER --set serve.port=9000 demo`
    """
    from hasat.demo import Past, settings_for, workers_of
    from hasat.http.listener import local_address
    from hasat.web.story import WORDS, spoken

    flags = context.get_flags(ctx)
    flags.setdefault("home", str(Path(".demo").resolve()))
    # The story is told below; what works behind it only speaks up when something is wrong.
    if "HASAT_LOG_LEVEL" not in os.environ:
        flags.setdefault("log.level", "WARNING")
    home = Path(flags["home"])
    flags["config"] = str(home / "config")
    alone = without_settings(os.environ, _KEPT)
    os.environ.clear()
    os.environ.update(alone)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    language = spoken(os.environ)
    words = WORDS[language]
    mine = _alone_in(home, words)
    port = _port(home)
    upstreams = f"http://127.0.0.1:{port}"
    now = datetime.now(UTC)
    past = Past.read(home, now)
    past.write(home)
    (home / "workers.json").write_text(json.dumps(workers_of(upstreams)), "utf-8")
    _write_settings(home / "config", settings_for(upstreams, home, past), now, past.lived)
    settings = context.get_settings(ctx)
    mine.write_text(local_address(settings), "utf-8")
    output.note(words["starting"])
    output.note(words["folder"].format(home=home))
    beside = {"sim story": ["sim", "story", "--port", str(port), "--folder", str(home)]}

    async def begin(store: Store) -> None:
        announce(settings, store, language)
        _tell_story(settings, upstreams, language)
        await _harvest(store, settings, words)

    context.run_async(run_up(settings, flags, beside, begin))


def _alone_in(home: Path, words: Mapping[str, str]) -> Path:
    """Keep others out of the folder while this process lives; the file shall say where it is."""
    note = home / "demo.lock"
    if try_lock(note) is None:
        where = note.read_text("utf-8")
        raise ConflictError(
            words["running"].format(home=home, where=where), remedy=words["another"]
        )
    return note


def _port(home: Path) -> int:
    """Where the upstreams listen: where they did before, or to Hasat they would be new ones."""
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
    folder: Path, upstreams: Mapping[str, Any], now: datetime, lived: timedelta
) -> None:
    """What makes this the demo, for its own processes and for whoever looks into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    hours = {
        "threshold_hours": _HOURS_UNTIL_PROBABLY_OVER,
        "safety_lag_hours": _HOURS_UNTIL_PROBABLY_OVER,
    }
    schedule: dict[str, Any] = {name: {"cron": _EVERY_MINUTE} for name in _OFTEN}
    schedule["auto_finish_stale_fixtures"] = {"cron": _EVERY_MINUTE, "params": hours}
    schedule["daily_standings"]["params"] = {"at_once": True}
    settings = {
        **upstreams,
        "demo": {
            "began": (now - lived).isoformat(timespec="seconds"),
            "started": now.isoformat(timespec="seconds"),
        },
        "jobs": {"schedule": schedule, "drain_seconds": _DRAIN_SECONDS},
    }
    text = yaml.safe_dump(settings, sort_keys=False)
    path = folder / "hasat.yaml"
    path.touch(mode=0o600)
    path.write_text(f"# Written anew by every `hasat demo`.\n{text}", "utf-8")


def _tell_story(settings: Settings, upstreams: str, language: "Language") -> None:
    """The narrated first screen."""
    from hasat.http.listener import local_address
    from hasat.web.story import WORDS, told

    zone = ZoneInfo(settings.jobs.timezone)
    where = local_address(settings)
    words = WORDS[language]
    output.note("")
    output.note(words["look"].format(where=where))
    for one in told(settings, datetime.now(UTC)):
        look = one.scene.look
        look = f"curl '{where}{look}'" if look.startswith("/") else look
        output.note(f"  {one.scene.title[language]} ({one.when(language, zone)})")
        output.note(f"    {look}")
    output.note(words["commands"].format(zone=zone.key))
    bin_folder = shlex.quote(str(Path(sys.executable).parent))
    home = shlex.quote(str(settings.home))
    output.note(f"  export HASAT_HOME={home} HASAT_CONFIG={home}/config PATH={bin_folder}:$PATH")
    output.note(f"{words['break']} curl -X PUT {upstreams}/gib/_sim/faults/half-list")
    output.note(f"{words['mend']} curl -X DELETE {upstreams}/gib/_sim/faults/half-list")
    output.note("")


async def _harvest(store: Store, settings: Settings, words: Mapping[str, str]) -> None:
    """Queue what fills the house, and show how it fills."""
    from hasat.demo import MATCHES, PARCELS, TAXPAYERS
    from hasat.jobs.connection import CONNECTION_ERRORS
    from hasat.jobs.queue import queue_run
    from hasat.jobs.runs import get_run

    catalogue = build_catalogue(settings)
    scan = await _scan(store, settings, catalogue)
    for name in _FIRST:
        await queue_run(store, catalogue, name)
    expected = {"taxpayers": TAXPAYERS, "parcels": PARCELS, "matches": MATCHES}
    counts = dict.fromkeys(expected, 0)
    later = [*_ONCE_THERE_ARE_MATCHES]
    with _bars(expected, words) as show:
        while not (counts["taxpayers"] and counts["matches"] and scan.state == "finished"):
            await asyncio.sleep(_LOOK_SECONDS)
            # Whoever is rough with the database sees it come back.
            with contextlib.suppress(*CONNECTION_ERRORS):
                counts, scan = await _counted(store), await get_run(store, scan.id)
                while later and counts["matches"] == MATCHES:
                    await queue_run(store, catalogue, later.pop())
            show(counts)
    if scan.outcome != "done":
        output.note(
            f"The scan of the town ended as {scan.outcome}; `hasat jobs show {scan.id}` says why. "
            "The next start goes on with it."
        )
    told = ", ".join(f"{count} {words[name]}" for name, count in counts.items())
    output.note(words["harvested"].format(told=told))


async def _scan(store: Store, settings: Settings, catalogue: Catalogue) -> Run:
    """The run that scans the town: the one of an earlier start, unless that went wrong."""
    from hasat.demo import AREA
    from hasat.jobs.queue import queue_run
    from hasat.jobs.runs import list_runs
    from hasat.sources.tkgm.source import NAME

    town = {"area": json.loads((settings.home / AREA).read_text("utf-8"))}
    for earlier in await list_runs(store, job=NAME):
        if earlier.params == town and earlier.outcome in {None, "done"}:
            return earlier
    return await queue_run(store, catalogue, NAME, town)


async def _counted(store: Store) -> dict[str, int]:
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
    """A bar for each, for a person at a terminal only."""
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
