"""Cadastres to practise on: read from a file or generated from a seed, and an oracle over them.

The oracle answers as the land registry does: a point in a parcel yields the whole parcel with
coordinates rounded to five decimals, a point in a road yields nothing, a number yields its parcel.
Where parcels of a file overlap, the smaller keeps the ground.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import Geometry, MultiPolygon, Polygon, STRtree
from shapely.geometry import shape

from hasat.sources.tkgm.geometry import Plane

DECIMALS = 5
MAHALLE_ID = 147766
# Parcels nearer than this to each other belong to one block; a wider gap is a road.
BLOCK_GAP_METRES = 1.5
# The share of numbers that were given to parcels since divided or merged away.
RETIRED_SHARE = 0.08
_LARGE_SQUARE_METRES = 1_500.0
_USES = ("Arsa", "Arsa", "Bahçe", "Kargir Ev ve Arsası", "Kargir Apartman", "Zeytinlik")


@dataclass(frozen=True)
class CadastreParcel:
    """A parcel as the registry knows it: exact ground, the rounded outline it tells, its number."""

    mahalle_id: int
    ada: str
    parsel: str
    ground: Polygon | MultiPolygon
    outline: Polygon | MultiPolygon
    square_metres: float

    @property
    def key(self) -> tuple[int, str, str]:
        return (self.mahalle_id, self.ada, self.parsel)

    def feature(self) -> dict[str, Any]:
        """The upstream's own form of the answer to a point question."""
        return {
            "type": "Feature",
            "geometry": json.loads(shapely.to_geojson(self.outline)),
            "properties": {
                "ilAd": "Istanbul",
                "ilId": 56,
                "ilceAd": "Kadiköy",
                "ilceId": 521,
                "mahalleAd": "Tuğlaci Başi",
                "mahalleId": self.mahalle_id,
                "adaNo": self.ada,
                "parselNo": self.parsel,
                "alan": f"{self.square_metres:,.2f}",
                "nitelik": self._use,
                "mevkii": "",
                "pafta": "151",
                "durum": "1",
                "zeminKmdurum": "Ana Taşınmaz",
                "ozet": f"Tuğlaci Başi-{self.ada}/{self.parsel}",
            },
        }

    @property
    def _use(self) -> str:
        """The same for a parcel each time: of large ones fields and parks, else what towns have."""
        if self.square_metres > _LARGE_SQUARE_METRES:
            return ("Tarla", "Park")[zlib.crc32(self.ada.encode()) % 2]
        return _USES[zlib.crc32(f"{self.ada}/{self.parsel}".encode()) % len(_USES)]


class Cadastre:
    """All parcels of an area, with the two questions the registry answers."""

    def __init__(self, parcels: Sequence[CadastreParcel]) -> None:
        self.parcels = tuple(parcels)
        self._tree = STRtree([parcel.ground for parcel in self.parcels])
        self._areas = np.array([parcel.square_metres for parcel in self.parcels])
        self._numbers = {parcel.key: parcel for parcel in self.parcels}

    def at(self, lat: float, lon: float) -> CadastreParcel | None:
        """The parcel at a point; None in roads and everywhere else that nobody registered."""
        hits = self._tree.query(shapely.Point(lon, lat), predicate="intersects")
        return self.parcels[int(hits[np.argmin(self._areas[hits])])] if hits.size else None

    def numbered(self, mahalle_id: int, ada: str, parsel: str) -> CadastreParcel | None:
        """The parcel of that number; None where the number was never given or has been retired."""
        return self._numbers.get((mahalle_id, ada, parsel))

    def area(self, closing_metres: float = 15.0) -> Polygon | MultiPolygon:
        """The ground of all parcels together, with gaps up to twice `closing_metres` closed."""
        plane = Plane.around([parcel.ground for parcel in self.parcels])
        union = shapely.union_all([plane.to_metres(parcel.ground) for parcel in self.parcels])
        closed = areal(union.buffer(closing_metres).buffer(-closing_metres))
        ground: Polygon | MultiPolygon = plane.to_degrees(closed)
        return ground


def read_cadastre(path: Path, seed: int = 1) -> Cadastre:
    """A cadastre from a GeoJSON file; parcels without ada and parsel numbers are given some."""
    features = json.loads(path.read_text(encoding="utf-8"))["features"]
    kept = [f for f in features if f.get("geometry")]
    grounds = [areal(shapely.make_valid(shape(f["geometry"]))) for f in kept]
    plane = Plane.around(grounds)
    grounds = _disjoint([plane.to_metres(ground) for ground in grounds])
    given = [f.get("properties") or {} for f in kept]
    if all({"adaNo", "parselNo"} <= properties.keys() for properties in given):
        numbers = [
            (int(p.get("mahalleId", MAHALLE_ID)), str(p["adaNo"]), str(p["parselNo"]))
            for p in given
        ]
    else:
        numbers = number_parcels(grounds, seed)
    return assemble(grounds, numbers, plane)


def assemble(
    grounds: Sequence[Polygon | MultiPolygon],
    numbers: Sequence[tuple[int, str, str]],
    plane: Plane,
) -> Cadastre:
    """A cadastre of disjoint grounds in metres; what vanishes in the rounding is left out."""
    parcels = []
    for ground, (mahalle, ada, parsel) in zip(grounds, numbers, strict=True):
        exact = plane.to_degrees(ground)
        outline = shapely.transform(exact, lambda xy: np.round(xy, DECIMALS))
        if not ground.is_empty and outline.area > 0:
            parcels.append(CadastreParcel(mahalle, ada, parsel, exact, outline, ground.area))
    return Cadastre(parcels)


def number_parcels(
    grounds: Sequence[Polygon | MultiPolygon], seed: int
) -> list[tuple[int, str, str]]:
    """Numbers as surveyors give them: a block is an ada, its parcels are numbered along it.

    Some numbers are missing, because their parcels were divided or merged, and the parcels that
    came of it carry the numbers after the last.
    """
    dice = np.random.default_rng(seed)
    blocks = _blocks(grounds)
    order = sorted(set(blocks.tolist()), key=lambda b: _reading_order(grounds, blocks, b))
    numbers: list[tuple[int, str, str]] = [(0, "", "")] * len(grounds)
    for ada, block in enumerate(order, start=101):
        members = np.flatnonzero(blocks == block)
        along = _along(grounds, members)
        count = len(along)
        late = dice.random(count) < RETIRED_SHARE / 2
        number = 0
        for member, is_late in zip(along, late, strict=True):
            number += 1
            if not is_late:
                numbers[member] = (MAHALLE_ID, str(ada), str(number))
        for member, is_late in zip(along, late, strict=True):
            if is_late:
                number += 1
                numbers[member] = (MAHALLE_ID, str(ada), str(number))
    return numbers


def _blocks(grounds: Sequence[Polygon | MultiPolygon]) -> NDArray[np.int64]:
    """For each parcel the block it belongs to: parcels that touch, or nearly so, share one."""
    left, right = STRtree(grounds).query(grounds, predicate="dwithin", distance=BLOCK_GAP_METRES)
    parent = np.arange(len(grounds))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = int(parent[index])
        return index

    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        parent[root(a)] = root(b)
    return np.array([root(index) for index in range(len(grounds))])


def _reading_order(
    grounds: Sequence[Polygon | MultiPolygon], blocks: NDArray[np.int64], block: int
) -> tuple[float, float]:
    first = grounds[int(np.flatnonzero(blocks == block)[0])]
    return (-round(first.bounds[3] / 200.0), first.bounds[0])


def _along(grounds: Sequence[Polygon | MultiPolygon], members: NDArray[np.intp]) -> list[int]:
    """Members of a block from neighbour to nearest neighbour, starting in the north-west."""
    xy = np.array([grounds[int(i)].representative_point().coords[0] for i in members])
    at = int(np.argmin(xy[:, 0] - xy[:, 1]))
    left = np.ones(len(members), dtype=bool)
    path = []
    for _ in range(len(members)):
        path.append(int(members[at]))
        left[at] = False
        if left.any():
            remaining = np.flatnonzero(left)
            at = int(remaining[np.argmin(((xy[remaining] - xy[at]) ** 2).sum(axis=1))])
    return path


def _disjoint(grounds: Sequence[Polygon | MultiPolygon]) -> list[Polygon | MultiPolygon]:
    """The same grounds without overlaps: of two that overlap the smaller stays whole."""
    areas = [ground.area for ground in grounds]
    tree = STRtree(grounds)
    left, right = tree.query(grounds, predicate="intersects")
    smaller: dict[int, list[int]] = {}
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        if (areas[b], b) < (areas[a], a) and not grounds[a].touches(grounds[b]):
            smaller.setdefault(a, []).append(b)
    return [
        areal(ground.difference(shapely.union_all([grounds[b] for b in smaller[index]])))
        if index in smaller
        else ground
        for index, ground in enumerate(grounds)
    ]


def areal(geometry: Geometry) -> Polygon | MultiPolygon:
    """The polygons of a geometry, without the points and lines that set operations leave."""
    if isinstance(geometry, Polygon | MultiPolygon):
        return geometry
    parts = [part for part in shapely.get_parts(geometry) if isinstance(part, Polygon)]
    return MultiPolygon(parts)
