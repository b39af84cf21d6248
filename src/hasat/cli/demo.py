"""`hasat demo`: the whole house beside a simulated publisher, so that there is something to see."""

import os
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import typer
import yaml

from hasat.cli import manners
from hasat.cli.house import catalogue_of
from hasat.cli.roles import flags_of, run_up
from hasat.settings.environment import without_settings
from hasat.store import Store

# Few enough for a start within seconds and for next to no work in between.
_TAXPAYERS = 10_000
_PUBLISHED_EVERY_SECONDS = 60
# Among so few, the usual share would be one of each.
_CHURN = 3
# Where it listens and how it talks may be said by the environment, but nothing else: whoever tries
# the demo beside a real installation must not find it at work on that one's database.
_KEPT = ("HASAT_PORT", "HASAT_LOG_LEVEL", "HASAT_LOG_FORMAT", "HASAT_POSTGRES_BIN")


def add_to(app: typer.Typer) -> None:
    app.command()(demo)


def demo(ctx: typer.Context) -> None:
    """Show Hasat at work in the folder .demo, without touching anything else.

    Everything runs on this machine; no upstream is called: a simulated publisher of taxpayer lists
    changes them every minute. Ctrl-C ends it, `make clean` removes it.

    Examples: `hasat demo` · `hasat --set serve.port=9000 demo`
    """
    from hasat.serve.listen import address_of, bind
    from hasat.sim.gib import PATHS

    flags = flags_of(ctx)
    flags.setdefault("home", str(Path(".demo").resolve()))
    home = Path(flags["home"])
    flags["config"] = str(home / "config")
    alone = without_settings(os.environ, _KEPT)
    os.environ.clear()
    os.environ.update(alone)
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    publisher = f"http://127.0.0.1:{port}"
    _write_settings(home / "config", {box: publisher + path for box, path in PATHS.items()})
    settings = manners.settings_of(ctx)
    manners.note("Starting the demo: PostgreSQL, the API, a worker and a simulated publisher.")
    manners.note(f"Its data lives in {flags['home']}; no upstream is called.")
    words = ["sim", "gib", "--port", str(port), "--users", str(_TAXPAYERS), "--churn", str(_CHURN)]
    words += ["--every", str(_PUBLISHED_EVERY_SECONDS), "--began", _began(settings.home)]

    async def begin(store: Store) -> None:
        from hasat.jobs.queue import queue_run

        await queue_run(store, catalogue_of(settings), "gib_sync")
        api = f"{address_of(settings)}/api/v1"
        manners.note(f"The lists are read now and every minute from {publisher}; look at")
        manners.note(f"  changes  curl '{api}/einvoice/changes?limit=5&wait=60'")
        manners.note(f"  search   curl '{api}/einvoice?search=deniz'")
        manners.note(f"  a fault  curl -X PUT {publisher}/_sim/faults/half-list")
        manners.note(f"  then     HASAT_HOME={shlex.quote(flags['home'])} hasat gib runs")

    manners.run_async(run_up(settings, flags, {"sim gib": words}, begin))


def _write_settings(folder: Path, lists: Mapping[str, str]) -> None:
    """What makes this the demo, for its own processes and for whoever looks into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "gib": {f"{box.lower()}_list_url": address for box, address in lists.items()},
        "jobs": {"schedule": {"gib_sync": {"cron": "* * * * *"}}},
    }
    text = yaml.safe_dump(settings, sort_keys=False)
    (folder / "hasat.yaml").write_text(f"# Written anew by every `hasat demo`.\n{text}", "utf-8")


def _began(home: Path) -> str:
    """When the publisher began: a demo that is started again goes on with the same lists."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = home / "publisher-began.txt"
    if not note.exists():
        note.write_text(datetime.now(UTC).isoformat(timespec="seconds"), "utf-8")
    return note.read_text("utf-8")
