"""Kinds of cadastres, generated from a seed: how parcels, roads and open ground are laid out."""

import math
from collections.abc import Callable

import numpy as np
import shapely
from numpy.random import Generator
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon
from shapely.affinity import rotate, translate

from hasat.sources.tkgm.geometry import Plane
from hasat.sources.tkgm.simulator.cadastre import Cadastre, areal, assemble, number_parcels

Grounds = list[Polygon | MultiPolygon]
Coordinates = NDArray[np.float64]


def generate_cadastre(
    kind: str, parcels: int, seed: int = 1, lat: float = 39.9, lon: float = 32.8
) -> Cadastre:
    """Generate a cadastre of about `parcels` parcels of a kind (see `KINDS`) around a place."""
    dice = np.random.default_rng(seed)
    grounds = [ground for ground in KINDS[kind](parcels, dice) if ground.area > 1.0]
    numbers = number_parcels(grounds, seed, one_block=kind in ONE_BLOCK)
    return assemble(grounds, numbers, Plane(lon, lat))


def _town(parcels: int, dice: Generator) -> Grounds:
    """Generate blocks of two rows of lots between bent streets, with tiny lots and parks."""
    side = math.ceil(math.sqrt(parcels / 16))
    lots: Grounds = []
    y = 0.0
    for _ in range(side):
        depth = dice.uniform(20, 38)
        x = 0.0
        while x < side * 125 and len(lots) < parcels:
            length = dice.uniform(60, 180)
            if dice.random() < 0.05:
                lots.append(shapely.box(x, y, x + length, y + 2 * depth))
            else:
                lots += _row(x, y, length, depth, dice) + _row(x, y + depth, length, depth, dice)
            x += length + dice.uniform(7, 16)
        y += 2 * depth + dice.uniform(7, 16)
    return _bent(lots, dice)


def _row(x: float, y: float, length: float, depth: float, dice: Generator) -> Grounds:
    lots: Grounds = []
    end = x + length
    while x < end:
        width = min(dice.uniform(9, 26), end - x)
        width = end - x if end - x - width < 7 else width
        if dice.random() < 0.03:
            tiny = shapely.box(x, y, x + min(width, 8), y + 9)
            lots += [tiny, areal(shapely.box(x, y, x + width, y + depth).difference(tiny))]
        else:
            lots.append(shapely.box(x, y, x + width, y + depth))
        x += width
    return lots


def _village(parcels: int, dice: Generator) -> Grounds:
    """Generate irregular plots, smaller towards the centre, cut by crooked lanes."""
    reach = math.sqrt(parcels * 900.0) / 2
    spots = dice.normal(0, 0.45, (parcels, 2)) * reach
    spots = spots[(np.abs(spots) < reach).all(axis=1)]
    plots = _cells(spots, reach)
    lanes = [
        shapely.boundary(cell).buffer(float(dice.uniform(1.5, 5.0)), quad_segs=2)
        for cell in _cells(spots[::14], reach)
    ]
    ways = shapely.STRtree(lanes)
    cut: Grounds = []
    for plot in plots:
        near = [lanes[int(index)] for index in ways.query(plot, predicate="intersects")]
        rest = areal(plot.difference(shapely.union_all(near))) if near else plot
        cut += [part for part in shapely.get_parts(rest) if part.area > 12]
    return cut


def _strips(parcels: int, dice: Generator) -> Grounds:
    """Generate long narrow fields side by side, with a track between the rows."""
    across = math.ceil(math.sqrt(parcels / 10))
    fields: Grounds = []
    y = 0.0
    while len(fields) < parcels:
        depth, x = dice.uniform(120, 420), 0.0
        for _ in range(across * 10):
            width = dice.lognormal(2.9, 0.5)
            fields.append(shapely.box(x, y, x + width, y + depth))
            x += width
            if dice.random() < 0.04:
                x += dice.uniform(3, 7)
        y += depth + dice.uniform(3, 9)
    return _bent(fields[:parcels], dice)


def _enclaves(parcels: int, dice: Generator) -> Grounds:
    """Generate large estates with holes that contain other plots, some in two parts."""
    side = math.ceil(math.sqrt(parcels / 3))
    estates: Grounds = []
    for row in range(side):
        for column in range(side):
            x, y = column * 130.0, row * 110.0
            estate = shapely.box(x, y, x + 120 + 10 * (dice.random() < 0.6), y + 100)
            holes: list[Polygon] = []
            for _ in range(int(dice.integers(1, 4))):
                cx, cy = x + dice.uniform(20, 100), y + dice.uniform(20, 80)
                radius = float(dice.uniform(5, 15))
                plot = shapely.Point(cx, cy).buffer(radius, quad_segs=2)
                if all(plot.distance(other) > 2 for other in holes):
                    holes.append(plot)
            if dice.random() < 0.1:
                split = shapely.box(x + 55, y, x + 62, y + 100)
                holes = [hole for hole in holes if hole.disjoint(split)]
                holes.append(split)
            estates.append(areal(estate.difference(shapely.union_all(holes))))
            estates += holes
    return estates[:parcels]


def _mixed(parcels: int, dice: Generator) -> Grounds:
    """Generate a town, a village, fields and estates next to each other."""
    quarters = [make(parcels // 4, dice) for make in (_town, _village, _strips, _enclaves)]
    everything: Grounds = []
    x = 0.0
    for quarter in quarters:
        west, south, east, _ = shapely.total_bounds(quarter).tolist()
        shift = (x - west, -south)
        everything += [areal(translate(ground, *shift)) for ground in quarter]
        x += east - west + 12.0
    return everything


def _cells(spots: Coordinates, reach: float) -> Grounds:
    frame = shapely.box(-reach, -reach, reach, reach)
    cells = shapely.voronoi_polygons(shapely.multipoints(spots), extend_to=frame)
    return [areal(cell) for cell in shapely.intersection(shapely.get_parts(cells), frame)]


def _bent(grounds: Grounds, dice: Generator) -> Grounds:
    """Turn and curve plots, so that no edge runs along the axes."""
    turn = dice.uniform(0, math.pi)
    turned = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    dense = shapely.segmentize(np.array(grounds), 30.0)

    def bend(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        waves = np.stack([np.sin(xy[:, 1] / 150.0), np.sin(xy[:, 0] / 190.0)], axis=1)
        bent: NDArray[np.float64] = (xy + 14.0 * waves) @ turned
        return bent

    return list(shapely.transform(dense, bend))


def _slivers(parcels: int, dice: Generator) -> Grounds:
    """Generate a village whose plots left slivers, corners and sheds behind when they were cut."""
    cut: Grounds = []
    for plot in _village(max(8, int(parcels * 0.8)), dice):
        if plot.area < 90 or dice.random() > 0.28:
            cut.append(plot)
        elif dice.random() < 0.6:
            cut += _slice(plot, float(dice.lognormal(1.2, 0.5)), dice)
        else:
            spot = shapely.point_on_surface(plot)
            size = float(dice.uniform(2.2, 4.5))
            shed = rotate(shapely.box(*_around(spot, size)), float(dice.uniform(0, 90)))
            cut += [areal(plot.intersection(shed)), areal(plot.difference(shed))]
    return cut


def _slice(plot: Polygon | MultiPolygon, width: float, dice: Generator) -> Grounds:
    """Cut a strip off the longest side of a plot, or off the side across."""
    corners = shapely.get_coordinates(shapely.minimum_rotated_rectangle(plot))
    sides = np.diff(corners[:3], axis=0)
    along = sides[int(np.argmax((sides**2).sum(axis=1)))]
    angle = math.degrees(math.atan2(along[1], along[0])) + 90.0 * (dice.random() < 0.25)
    level = rotate(plot, -angle, origin=(0, 0))
    west, south, east, north = level.bounds
    strip = shapely.box(west, south, east, south + min(width, (north - south) / 2))
    return [
        areal(rotate(areal(part), angle, origin=(0, 0)))
        for part in (level.intersection(strip), level.difference(strip))
    ]


def _around(spot: shapely.Point, reach: float) -> tuple[float, float, float, float]:
    return (spot.x - reach, spot.y - reach, spot.x + reach, spot.y + reach)


def _condominiums(parcels: int, dice: Generator) -> Grounds:
    """Generate terraced houses of four to seven metres, garages, and the ground they share."""
    lots: Grounds = []
    y = 0.0
    per_row = max(10, int(math.sqrt(parcels) * 1.2))
    while len(lots) < parcels:
        x, depth, reach = 0.0, float(dice.uniform(18, 30)), 0.0
        row: Grounds = []
        for _ in range(per_row):
            if dice.random() < 0.08:
                x += float(dice.uniform(5, 9))
            width = float(dice.uniform(4, 7))
            row.append(shapely.box(x, y, x + width, y + depth))
            x += width
            reach = x
        garages: Grounds = []
        left = 0.0
        while dice.random() < 0.8 and left + 20 < reach:
            left += float(dice.uniform(3, 12))
            for _ in range(int(dice.integers(3, 9))):
                garages.append(shapely.box(left, y + depth + 5, left + 2.9, y + depth + 10.5))
                left += 2.9
        shared = shapely.box(0, y + depth, reach, y + depth + 14).difference(
            shapely.union_all(garages)
        )
        lots += [*row, *garages, areal(shared)]
        y += depth + 14 + float(dice.uniform(7, 12))
    return _bent(lots[:parcels], dice)


def _wide_roads(parcels: int, dice: Generator) -> Grounds:
    """Generate a new quarter with boulevards of 20 to 45 metres, some with kiosks in them."""
    lots: Grounds = []
    y, across = 0.0, 90.0 * math.sqrt(parcels / 12)
    while len(lots) < parcels:
        x, depth = 0.0, float(dice.uniform(22, 40))
        while x < across:
            length = float(dice.uniform(60, 140))
            lots += _row(x, y, length, depth, dice) + _row(x, y + depth, length, depth, dice)
            road = float(dice.uniform(12, 45))
            if dice.random() < 0.15 and road > 20:
                kiosk = shapely.Point(x + length + road / 2, y + depth)
                lots.append(shapely.box(*_around(kiosk, float(dice.uniform(2.5, 6)))))
            x += length + road
        y += 2 * depth + float(dice.uniform(12, 45))
    return _bent(lots[:parcels], dice)


def _lakes(parcels: int, dice: Generator) -> Grounds:
    """Generate shore plots around lakes, and a river through the village."""
    plots = _village(int(parcels * 1.25), dice)
    west, south, east, north = shapely.total_bounds(plots).tolist()
    reach = east - west
    water = [
        shapely.Point(dice.uniform(west, east), dice.uniform(south, north)).buffer(
            reach * float(dice.uniform(0.04, 0.12)), quad_segs=6
        )
        for _ in range(4)
    ]
    along = np.linspace(west, east, 40)
    bends = south + (north - south) * (
        0.5 + 0.2 * np.sin(along / reach * float(dice.uniform(6, 14)))
    )
    water.append(
        shapely.LineString(np.stack([along, bends], axis=1)).buffer(float(dice.uniform(6, 20)))
    )
    wet = shapely.union_all(water)
    return [part for plot in plots for part in shapely.get_parts(plot.difference(wet))]


def _terraces(parcels: int, dice: Generator) -> Grounds:
    """Generate long narrow terraces on a slope, with walls and footpaths between them."""
    fields: Grounds = []
    y, across = 0.0, 60.0 * math.sqrt(parcels / 5)
    while len(fields) < parcels:
        height, x = float(dice.lognormal(1.9, 0.35)), 0.0
        while x < across:
            length = float(dice.lognormal(3.9, 0.5))
            fields.append(shapely.box(x, y, x + length, y + height))
            x += length + (float(dice.uniform(1, 3)) if dice.random() < 0.1 else 0.0)
        y += height + (float(dice.uniform(1.5, 4)) if dice.random() < 0.25 else 0.0)
    return _bent(fields[:parcels], dice)


def _hamlets(parcels: int, dice: Generator) -> Grounds:
    """Generate hamlets of a few dozen plots, far apart in ground that is not registered."""
    plots: Grounds = []
    side = math.ceil(math.sqrt(parcels / 40))
    for place in range(side * side):
        some = _village(int(dice.integers(15, 65)), dice)
        row, column = divmod(place, side)
        shift = (column * 420 + dice.uniform(-60, 60), row * 420 + dice.uniform(-60, 60))
        plots += [areal(translate(plot, *shift)) for plot in some]
    return plots


def _old_village(parcels: int, dice: Generator) -> Grounds:
    """Generate a village whose narrow lanes cut many plots and leave pieces on their other side."""
    reach = math.sqrt(parcels * 1_400.0) / 2
    centre = dice.normal(0, 0.24, (parcels * 2 // 3, 2)) * reach
    fields = dice.uniform(-1, 1, (parcels // 3, 2)) * reach
    spots = np.vstack([centre, fields])
    spots = spots[(np.abs(spots) < reach).all(axis=1)]
    along = spots[dice.choice(len(spots), max(5, len(spots) // 22), replace=False)]
    lanes = shapely.union_all(
        [
            shapely.boundary(cell).buffer(float(dice.uniform(1.2, 3.5)), quad_segs=2)
            for cell in _cells(along, reach)
        ]
    )
    rest = [shapely.difference(plot, lanes) for plot in _cells(spots, reach)]
    return [part for plot in rest for part in shapely.get_parts(plot) if part.area > 15]


# Kinds without blocks: all parcels are numbered together, as in villages without an ada.
ONE_BLOCK = frozenset({"old-village"})

KINDS: dict[str, Callable[[int, Generator], Grounds]] = {
    "town": _town,
    "village": _village,
    "strips": _strips,
    "enclaves": _enclaves,
    "mixed": _mixed,
    "slivers": _slivers,
    "condominiums": _condominiums,
    "wide-roads": _wide_roads,
    "lakes": _lakes,
    "terraces": _terraces,
    "hamlets": _hamlets,
    "old-village": _old_village,
}
