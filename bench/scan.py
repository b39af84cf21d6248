"""Count the queries that a scan needs, and compare what it claims with the truth.

For each cadastre, read from files or generated, and each quality: parcels, queries, queries per
parcel found, recall by count (of all parcels, and of those of 60 m2 and more), and for comparison a
grid with pruning at the widest step that reaches the same recall. The scanned area is the union of
all parcels with gaps up to 30 m closed (or, with --area box, their bounding box, most of which may
be empty).

Next to the truth are the intervals that the scan states before (parcels and queries) and after
(parcels, and the share found at least). The exit code is 1 if a claim made after a scan does not
hold, or if fewer than 90 % of the intervals stated before do.

    python bench/scan.py FILE.geojson ... [--generated town:3000 ...] [--quality standard] [--json]

Without files and kinds, it scans a cadastre of every generated kind.

With --scale N ... it measures instead the time and memory of the planner when N parcels are known:
copies of a town are laid out side by side, most of their parcels are recorded, and as many empty
points of their roads as a scan would have queried; then batches are timed.

    python bench/scan.py --scale 50000 200000
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, ParcelNumber, Point
from hasat.sources.tkgm.scan.planner import GridPlanner, Planner
from hasat.sources.tkgm.scan.progress import Forecast
from hasat.sources.tkgm.simulator.cadastre import Cadastre, CadastreParcel, read_cadastre
from hasat.sources.tkgm.simulator.kinds import KINDS, generate_cadastre

COUNTED_SQUARE_METRES = 60.0
# The share of the intervals stated before scans that must contain the truth.
MUST_HOLD = 0.9
GENERATED_PARCELS = 1000
SCALE_TOWN = 2000
SCALE_BATCHES = 60
# One in this many parcels is left to be found.
SCALE_UNKNOWN = 25
# Empty points that a scan queries per parcel.
SCALE_EMPTY = 0.7
GRID_STEPS = (
    50,
    40,
    30,
    25,
    20,
    17,
    15,
    13,
    12,
    11,
    10,
    9.5,
    9,
    8.5,
    8,
    7.5,
    7,
    6.5,
    6,
    5.5,
    5,
    4.5,
    4,
)


@dataclass(frozen=True)
class Scan:
    """The result of one scan of one cadastre."""

    cadastre: str
    method: str
    parcels: int
    found: int
    questions: int
    questions_per_parcel: float
    recall: float
    missed: int
    own_milliseconds_per_batch: float
    worst_batch_milliseconds: float
    recall_of_all: float
    forecast_parcels: tuple[float, float]
    forecast_queries: tuple[int, int]
    parcels_hold: bool
    queries_hold: bool
    final_parcels: tuple[float, float]
    final_holds: bool
    found_at_least: float
    claim_holds: bool
    missing_numbers: int


@dataclass(frozen=True)
class GridResult:
    """The grid at the widest step that finds as much."""

    step: float
    questions: int
    questions_per_parcel: float
    recall: float
    ratio: float


def scan(
    name: str, cadastre: Cadastre, area: Polygon | MultiPolygon, quality: str, by_number: bool
) -> Scan:
    started = time.process_time()
    planner = Planner(area, quality, by_number=by_number)  # type: ignore[arg-type]
    own, worst, questions, batches = time.process_time() - started, 0.0, 0, 0
    found: dict[ParcelKey, CadastreParcel] = {}
    forecast: Forecast | None = None
    while True:
        started = time.process_time()
        batch = planner.next_batch()
        spent = time.process_time() - started
        if not batch:
            break
        responses: list[Parcel | None] = []
        for query in batch:
            if isinstance(query, ParcelNumber):
                parcel = cadastre.numbered(query.mahalle_id, query.ada, query.parsel)
            else:
                parcel = cadastre.at(query.lat, query.lon)
            if parcel is not None:
                found[parcel.key] = parcel
            responses.append(Parcel(parcel.key, parcel.outline) if parcel else None)
        started = time.process_time()
        for query, response in zip(batch, responses, strict=True):
            planner.record(query, response)
        spent += time.process_time() - started
        own, worst = own + spent, max(worst, spent)
        questions, batches = questions + len(batch), batches + 1
        forecast = forecast or planner.forecast()
    recall, missed = recall_of(cadastre, set(found))
    estimate, claim, parcels = planner.estimate(), planner.completeness(), len(cadastre.parcels)
    assert forecast is not None, "the area is too small"
    assert claim is not None, "nothing was found"
    return Scan(
        cadastre=name,
        method=quality + (" by number" if by_number else ""),
        parcels=parcels,
        found=len(found),
        questions=questions,
        questions_per_parcel=questions / len(found),
        recall=recall,
        missed=missed,
        own_milliseconds_per_batch=own / max(1, batches) * 1000,
        worst_batch_milliseconds=worst * 1000,
        recall_of_all=len(found) / parcels,
        forecast_parcels=(forecast.low, forecast.high),
        forecast_queries=(forecast.least_questions, forecast.most_questions),
        parcels_hold=forecast.low <= parcels <= forecast.high,
        queries_hold=forecast.least_questions <= questions <= forecast.most_questions,
        final_parcels=(estimate.low, estimate.high),
        final_holds=estimate.low <= parcels <= estimate.high,
        found_at_least=claim.low,
        claim_holds=claim.low <= recall,
        missing_numbers=claim.missing_numbers,
    )


def recall_of(cadastre: Cadastre, found: set[ParcelKey]) -> tuple[float, int]:
    counted = {p.key for p in cadastre.parcels if p.square_metres >= COUNTED_SQUARE_METRES}
    return len(counted & found) / len(counted), len(counted - found)


def grid_scan(
    cadastre: Cadastre, area: Polygon | MultiPolygon, step: float
) -> tuple[int, set[ParcelKey]]:
    grid, questions = GridPlanner(area, step), 0
    found: set[ParcelKey] = set()
    while batch := grid.next_batch():
        questions += len(batch)
        for query in batch:
            assert isinstance(query, Point)
            parcel = cadastre.at(query.lat, query.lon)
            if parcel is not None:
                found.add(parcel.key)
                grid.record(query, Parcel(parcel.key, parcel.outline))
    return questions, found


class GridComparison:
    """The grid on one cadastre at any step, each computed once."""

    def __init__(self, cadastre: Cadastre, area: Polygon | MultiPolygon) -> None:
        self._cadastre, self._area = cadastre, area
        self._done: dict[float, tuple[int, int, float]] = {}

    def at_recall(self, recall: float, questions: int) -> GridResult:
        """Bisect the steps: a finer grid finds more, apart from noise far below a step."""
        low, high = 0, len(GRID_STEPS) - 1
        while low < high:
            middle = (low + high) // 2
            if self._at(GRID_STEPS[middle])[2] >= recall:
                high = middle
            else:
                low = middle + 1
        queries, found, reached = self._at(GRID_STEPS[low])
        return GridResult(GRID_STEPS[low], queries, queries / found, reached, questions / queries)

    def _at(self, step: float) -> tuple[int, int, float]:
        if step not in self._done:
            questions, found = grid_scan(self._cadastre, self._area, step)
            self._done[step] = (questions, len(found), recall_of(self._cadastre, found)[0])
        return self._done[step]


@dataclass(frozen=True)
class Scaled:
    """The time and memory of the planner with a number of known parcels."""

    known: int
    milliseconds_per_batch: float
    worst_milliseconds: float
    peak_megabytes: float


class ManyTowns:
    """Copies of one town side by side, without copies in memory."""

    def __init__(self, parcels: int) -> None:
        self._town = generate_cadastre("town", SCALE_TOWN, seed=1)
        self._west, self._south, east, north = self._town.area().bounds
        self._wide, self._high = east - self._west, north - self._south
        self.copies = -(-parcels // len(self._town.parcels))
        self._across = int(np.ceil(np.sqrt(self.copies)))

    def area(self) -> MultiPolygon:
        ground = self._town.area()
        parts = [self._shift(ground, copy) for copy in range(self.copies)]
        return MultiPolygon([part for one in parts for part in shapely.get_parts(one).tolist()])

    def responses(self, copy: int) -> Iterator[tuple[Point, Parcel | None]]:
        """Yield the responses of an earlier scan of a copy."""
        dice = np.random.default_rng(copy)
        for number, parcel in enumerate(self._town.parcels):
            if number % SCALE_UNKNOWN:
                inside = self._shift(parcel.ground, copy).representative_point()
                yield Point(inside.y, inside.x), self._parcel(parcel, copy)
        empty = 0
        while empty < SCALE_EMPTY * len(self._town.parcels):
            lon, lat = (self._west, self._south) + dice.random(2) * (self._wide, self._high)
            if self._town.at(lat, lon) is None:
                empty += 1
                moved = self._shift(shapely.Point(lon, lat), copy)
                yield Point(moved.y, moved.x), None

    def at(self, point: Point) -> Parcel | None:
        column = int((point.lon - self._west) // self._wide)
        row = int((point.lat - self._south) // self._high)
        found = self._town.at(point.lat - row * self._high, point.lon - column * self._wide)
        return None if found is None else self._parcel(found, row * self._across + column)

    def _parcel(self, parcel: CadastreParcel, copy: int) -> Parcel:
        key = (parcel.mahalle_id + copy, parcel.ada, parcel.parsel)
        return Parcel(key, self._shift(parcel.outline, copy))

    def _shift(self, ground: Any, copy: int) -> Any:
        row, column = divmod(copy, self._across)
        away = np.array([column * self._wide, row * self._high])
        return shapely.transform(ground, lambda xy: xy + away)


def scaled(parcels: int, quality: str) -> Scaled:
    towns = ManyTowns(parcels)
    area = towns.area()
    planner = Planner(area, quality)  # type: ignore[arg-type]
    known = 0
    for copy in range(towns.copies):
        for query, parcel in towns.responses(copy):
            planner.record(query, parcel)
            known += parcel is not None
    # A scan would have updated every tile before.
    for tile in list(planner.terrain.stale):
        planner.terrain.update(tile)
    spent = []
    for _ in range(SCALE_BATCHES):
        started = time.process_time()
        batch = planner.next_batch()
        planning = time.process_time() - started
        responses = [towns.at(query) for query in batch if isinstance(query, Point)]
        started = time.process_time()
        for asked, response in zip(batch, responses, strict=True):
            planner.record(asked, response)
        spent.append(planning + time.process_time() - started)
    return Scaled(
        known,
        sum(spent) / len(spent) * 1000,
        max(spent) * 1000,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def cadastres(arguments: argparse.Namespace) -> Iterator[tuple[str, Cadastre]]:
    for file in arguments.files:
        yield file.stem, read_cadastre(file)
    for name in arguments.generated:
        kind, _, size = name.partition(":")
        yield name, generate_cadastre(kind, int(size or 3000), seed=arguments.seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--generated", nargs="*", default=[], metavar="KIND:PARCELS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quality", nargs="*", default=["standard"])
    parser.add_argument("--by-number", choices=("no", "yes", "both"), default="no")
    parser.add_argument("--area", choices=("closed", "box"), default="closed")
    parser.add_argument("--no-grid", action="store_true", help="omit the grid, which takes long")
    parser.add_argument("--scale", nargs="*", type=int, metavar="PARCELS")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.scale:
        show_scale(arguments)
        return
    if not arguments.files and not arguments.generated:
        arguments.generated = [f"{kind}:{GENERATED_PARCELS}" for kind in KINDS]
    rows = []
    for name, cadastre in cadastres(arguments):
        area = cadastre.area()
        if arguments.area == "box":
            area = shapely.box(*area.bounds)
        grid = GridComparison(cadastre, area)
        for quality in arguments.quality:
            for by_number in {"no": (False,), "yes": (True,), "both": (False, True)}[
                arguments.by_number
            ]:
                row = scan(name, cadastre, area, quality, by_number)
                compared = None if arguments.no_grid else grid.at_recall(row.recall, row.questions)
                rows.append((row, compared))
                if not arguments.json:
                    print(line(row, compared), flush=True)
    problems = failed([row for row, _ in rows])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if arguments.json:
        scans = [asdict(row) | {"grid": asdict(b) if b else None} for row, b in rows]
        result = {"scans": scans, "peak_megabytes": memory, "failed": problems}
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        mean = sum(row.questions_per_parcel for row, _ in rows) / len(rows)
        ratios = [compared.ratio for _, compared in rows if compared]
        share = f", {sum(ratios) / len(ratios):.2f} of the grid" if ratios else ""
        least = min(row.recall for row, _ in rows)
        print(f"average: {mean:.2f} queries per parcel{share}; least recall {least:.4f}")
        for name, held in shares(row for row, _ in rows).items():
            print(f"{name}: {held:.0%} hold")
        print(f"peak memory {memory:.0f} MB", *problems, sep="\n")
    sys.exit(1 if problems else 0)


def shares(scans: Iterable[Scan]) -> dict[str, float]:
    """Return the share of intervals that contain the truth."""
    rows = list(scans)
    names = {
        "parcels before": "parcels_hold",
        "queries before": "queries_hold",
        "parcels after": "final_holds",
        "found at least": "claim_holds",
    }
    return {n: sum(getattr(row, field) for row in rows) / len(rows) for n, field in names.items()}


def failed(scans: list[Scan]) -> list[str]:
    """Return what does not hold."""
    problems = [
        f"{row.cadastre} {row.method}: it claims {row.found_at_least:.4f} and "
        f"{row.final_parcels[0]:.0f} to {row.final_parcels[1]:.0f} parcels, but found "
        f"{row.recall:.4f} of {row.parcels}"
        for row in scans
        if not (row.claim_holds and row.final_holds)
    ]
    before = {name: held for name, held in shares(scans).items() if name.endswith("before")}
    problems += [
        f"{name}: only {held:.0%} hold" for name, held in before.items() if held < MUST_HOLD
    ]
    return problems


def show_scale(arguments: argparse.Namespace) -> None:
    """Show the smallest first, because memory is measured at its peak."""
    rows = [scaled(parcels, arguments.quality[0]) for parcels in sorted(arguments.scale)]
    if arguments.json:
        json.dump({"scale": [asdict(row) for row in rows]}, sys.stdout, indent=2)
        print()
        return
    for row in rows:
        print(
            f"{row.known:7} parcels known: {row.milliseconds_per_batch:5.1f} ms a batch "
            f"(worst {row.worst_milliseconds:.0f}), peak memory {row.peak_megabytes:.0f} MB"
        )


def interval(stated: tuple[float, float], truth: float) -> str:
    low, high = stated
    return f"{low:.0f}..{high:.0f} for {truth:.0f}{'' if low <= truth <= high else ' (FALSE)'}"


def line(row: Scan, compared: GridResult | None) -> str:
    text = (
        f"{row.cadastre:22} {row.method:20} {row.parcels:6} parcels {row.questions:7} queries "
        f"{row.questions_per_parcel:5.2f} a parcel, recall {row.recall:.4f} ({row.missed} missed, "
        f"of all {row.recall_of_all:.4f}), {row.own_milliseconds_per_batch:5.1f} ms a batch "
        f"(worst {row.worst_batch_milliseconds:.0f})\n"
        f"{'':22} before: {interval(row.forecast_parcels, row.parcels)} parcels, "
        f"{interval(row.forecast_queries, row.questions)} queries; after: "
        f"{interval(row.final_parcels, row.parcels)} parcels, at least {row.found_at_least:.4f} "
        f"found{'' if row.claim_holds else ' (FALSE)'}, {row.missing_numbers} numbers missing"
    )
    if compared:
        text += (
            f"; grid {compared.step:g} m: {compared.questions} = "
            f"{compared.questions_per_parcel:.2f} a parcel, "
            f"recall {compared.recall:.4f}, ratio {compared.ratio:.2f}"
        )
    return text


if __name__ == "__main__":
    main()
