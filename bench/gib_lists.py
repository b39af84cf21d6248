"""Cost of reading the taxpayer lists, relative to the minimum work of any reader.

a  inflating both lists, one after the other, and nothing else
b  expat tokenising both lists, one after the other, without a handler
c  both lists, nothing new: split, fingerprinted and looked up, two processes / a
d  both lists, everything new: read, merged and encoded as COPY rows, two processes / b
e  fingerprints of the larger list compared with the last run's / a

    python bench/gib_lists.py [--taxpayers 1000000] [--layout compact] [--lists FOLDER] [--json]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any
from xml.parsers import expat

import psutil  # type: ignore[import-untyped]

from hasat.feed.encoding import pack_row, record_digest
from hasat.sources.gib.lists.fingerprints import KnownFingerprints
from hasat.sources.gib.lists.lines import identifier_of, published_bodies
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.reader import Reader
from hasat.sources.gib.lists.records import DOCUMENT_OF
from hasat.sources.gib.simulator.lists import Publisher
from hasat.sources.gib.simulator.taxpayers import LAYOUTS
from hasat.sources.gib.sync.partitions import partition, read_partition

BOXES = ("PK", "GB")
SEED = 20_260_219
PARTITIONS = 48


def inflate(paths: list[Path]) -> int:
    """(a): inflate both lists."""
    done = 0
    for path in paths:
        with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as stream:
            while block := stream.read(1 << 20):
                done += len(block)
    return done


def tokenise(paths: list[Path]) -> None:
    """(b): tokenise both lists with expat, without handlers."""
    for path in paths:
        parser = expat.ParserCreate()
        with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as stream:
            while block := stream.read(1 << 20):
                parser.Parse(block, False)
        parser.Parse(b"", True)


def fingerprint(path: Path, target: Path) -> int:
    """Read a list for the first time and store its fingerprints."""
    reader = Reader(open_list(path), SEED)
    with target.open("wb") as file:
        for batch in reader:
            file.writelines(print_ for print_, _ in batch.new)
    return reader.tally.users


def read_again(path: Path, last: Path) -> int:
    """(c): read a list in which every record is known."""
    known = KnownFingerprints(last.read_bytes())
    reader = Reader(open_list(path), SEED, known)
    new = sum(len(batch.new) for batch in reader)
    assert not new, "nothing is new"
    assert not known.gone(), "nothing is gone"
    return reader.tally.users


def merge_partition(folder: Path, number: int) -> dict[str, int]:
    """(d): write one partition's taxpayers as binary COPY rows, in one file per dataset."""
    rows = dict.fromkeys(DOCUMENT_OF, 0)
    files = {name: (folder / f"{name}.{number:02d}").open("wb") for name in rows}
    for token, (pk, gb) in read_partition(folder, number).taxpayers.items():
        key = identifier_of(token).encode()
        for name, body in published_bodies(
            [line for _, line in pk], [line for _, line in gb]
        ).items():
            files[name].write(pack_row(key, body, record_digest(body)))
            rows[name] += 1
    for file in files.values():
        file.close()
    return rows


def peak_memory(what: Callable[[], object]) -> int:
    """Return the peak resident set of this process and its children, sampled."""
    stop = Event()
    me = psutil.Process()
    peaks = [0]

    def watch() -> None:
        while not stop.wait(0.05):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peaks.append(total)

    thread = Thread(target=watch)
    thread.start()
    try:
        what()
    finally:
        stop.set()
        thread.join()
    return max(peaks)


def timed(what: Callable[[], object]) -> tuple[float, float]:
    """Return elapsed seconds and processor seconds."""
    began, worked = time.perf_counter(), sum(os.times()[:4])
    what()
    return time.perf_counter() - began, sum(os.times()[:4]) - worked


def measure(paths: list[Path], folder: Path, repeats: int) -> dict[str, Any]:
    """Run all measurements in turn, `repeats` times, so that load affects all alike."""
    context = get_context("spawn")
    fingerprints = [folder / f"{box}.fingerprints" for box in BOXES]
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        users = list(pool.map(fingerprint, paths, fingerprints))
    size = inflate(paths)

    def nothing_new() -> None:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(read_again, paths, fingerprints)) == users

    def everything_new() -> None:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            for box, task in [
                (box, pool.submit(partition, open_list(path), folder, box, SEED, PARTITIONS))
                for box, path in zip(BOXES, paths, strict=True)
            ]:
                assert task.result().tally.users == users[BOXES.index(box)]
            rows = list(pool.map(merge_partition, [folder] * PARTITIONS, range(PARTITIONS)))
        assert sum(row["einvoice"] for row in rows) > max(users) * 0.9

    last = fingerprints[0].read_bytes()
    current = last[: -16 * 300] + bytes(range(160))

    def compare() -> None:
        known = KnownFingerprints(last)
        indexes = known.find(current)
        known.mark(indexes)
        assert (int((indexes < 0).sum()), len(known.gone())) == (10, 4800)

    tasks = {
        "a": lambda: inflate(paths),
        "b": lambda: tokenise(paths),
        "c": nothing_new,
        "d": everything_new,
        "e": compare,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            times[name].append(timed(task))
    best = {name: min(passed for passed, _ in found) for name, found in times.items()}
    middle = {
        name: statistics.median(passed for passed, _ in found) for name, found in times.items()
    }
    return {
        "megabytes": size / 1e6,
        "records": users,
        "tasks": {
            name: {
                "seconds": best[name],
                "processors": min(worked for _, worked in times[name]),
                "to": to,
                "ratio": best[name] / best[to],
                "median_ratio": middle[name] / middle[to],
            }
            | ({"peak_megabytes": peak_memory(tasks[name]) / 1e6} if name in "cd" else {})
            for name, to in (("a", "a"), ("b", "b"), ("c", "a"), ("d", "b"), ("e", "a"))
        },
    }


def show(found: dict[str, Any]) -> None:
    users = found["records"]
    print(f"{found['megabytes']:.0f} MB of XML, {users[0]:,} + {users[1]:,} records")
    for name, task in found["tasks"].items():
        peak = f", {task['peak_megabytes']:.0f} MB" if "peak_megabytes" in task else ""
        print(
            f"{name}  {task['seconds']:6.2f} s ({task['processors']:.2f} s of processors{peak})  "
            f"{name}/{task['to']} = {task['ratio']:.2f} (fastest), "
            f"{task['median_ratio']:.2f} (median)"
        )


def main() -> None:
    """Write lists, unless they exist, and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--taxpayers", type=int, default=200_000)
    parser.add_argument("--layout", choices=LAYOUTS, default="published")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lists", type=Path, help="folder of the lists; written if missing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lists = options.lists or Path(scratch) / "lists"
        paths = [lists / f"newUser{box.title()}Listxml.zip" for box in BOXES]
        if not all(path.exists() for path in paths):
            lists.mkdir(parents=True, exist_ok=True)
            Publisher(options.taxpayers, layout=LAYOUTS[options.layout]).write(lists)
        folder = Path(scratch) / "work"
        folder.mkdir()
        found = measure(paths, folder, options.repeats)
    print(json.dumps(found, indent=2)) if options.json else show(found)


if __name__ == "__main__":
    main()
