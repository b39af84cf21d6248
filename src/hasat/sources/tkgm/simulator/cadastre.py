"""Cadastres for the simulator: read from a file, or assembled from generated ground.

A cadastre responds as the land registry does: a point in a parcel returns the whole parcel with
coordinates rounded to five decimals, a point in a road nothing, a number its parcel. Where parcels
of a file overlap, the smaller one keeps the overlap. `kinds` generates the ground of others.
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
from shapely import Geometry, MultiPolygon, STRtree
from shapely.geometry import shape

from hasat.sources.tkgm.geometry import Outline, Plane, polygons_of

DECIMALS = 5
MAHALLE_ID = 147766
# Parcels nearer than this to each other belong to one block; a wider gap is a road.
BLOCK_GAP_METRES = 1.5
# The share of numbers whose parcels were since divided or merged.
RETIRED_SHARE = 0.08
_LARGE_SQUARE_METRES = 1_500.0
_USES = ("Arsa", "Arsa", "Bahçe", "Kargir Ev ve Arsası", "Kargir Apartman", "Zeytinlik")


@dataclass(frozen=True)
class CadastreParcel:
    """A parcel with its exact ground, the rounded outline in responses, and its number."""

    mahalle_id: int
    ada: str
    parsel: str
    ground: Outline
    outline: Outline
    square_metres: float

    @property
    def key(self) -> tuple[int, str, str]:
        return (self.mahalle_id, self.ada, self.parsel)

    def feature(self) -> dict[str, Any]:
        """Return the registry's response to a query by point."""
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
                "zeminKmdurum": "Kat Mülkiyeti" if self.is_condominium else "Ana Taşınmaz",
                "ozet": f"Tuğlaci Başi-{self.ada}/{self.parsel}",
            },
        }

    @property
    def is_condominium(self) -> bool:
        """Whether the parcel has a building that is divided into units."""
        return self._use == "Kargir Apartman"

    @property
    def _use(self) -> str:
        """The use of the land, derived from the number so that it never changes."""
        if self.square_metres > _LARGE_SQUARE_METRES:
            return ("Tarla", "Park")[zlib.crc32(self.ada.encode()) % 2]
        return _USES[zlib.crc32(f"{self.ada}/{self.parsel}".encode()) % len(_USES)]


class Cadastre:
    """All parcels of an area, found by point or by number."""

    def __init__(self, parcels: Sequence[CadastreParcel]) -> None:
        self.parcels = tuple(parcels)
        self._tree = STRtree([parcel.ground for parcel in self.parcels])
        self._areas = np.array([parcel.square_metres for parcel in self.parcels])
        self._numbers = {parcel.key: parcel for parcel in self.parcels}

    def at(self, lat: float, lon: float) -> CadastreParcel | None:
        """Return the parcel at a point; None in roads and on unregistered ground."""
        hits = self._tree.query(shapely.Point(lon, lat), predicate="intersects")
        return self.parcels[int(hits[np.argmin(self._areas[hits])])] if hits.size else None

    def numbered(self, mahalle_id: int, ada: str, parsel: str) -> CadastreParcel | None:
        """Return the parcel with a number; None if the number was never used or is retired."""
        return self._numbers.get((mahalle_id, ada, parsel))

    def area(self, closing_metres: float = 15.0) -> Outline:
        """Return the union of all parcels, with gaps up to twice `closing_metres` closed."""
        plane = Plane.around([parcel.ground for parcel in self.parcels])
        union = shapely.union_all([plane.to_metres(parcel.ground) for parcel in self.parcels])
        closed = areal(union.buffer(closing_metres).buffer(-closing_metres))
        ground: Outline = plane.to_degrees(closed)
        return ground


def read_cadastre(path: Path, seed: int = 1) -> Cadastre:
    """Read a cadastre from a GeoJSON file; parcels without numbers are numbered."""
    features = json.loads(path.read_text(encoding="utf-8"))["features"]
    located = [f for f in features if f.get("geometry")]
    grounds = [areal(shapely.make_valid(shape(f["geometry"]))) for f in located]
    plane = Plane.around(grounds)
    grounds = _disjoint([plane.to_metres(ground) for ground in grounds])
    given = [f.get("properties") or {} for f in located]
    if all({"adaNo", "parselNo"} <= properties.keys() for properties in given):
        numbers = [
            (int(p.get("mahalleId", MAHALLE_ID)), str(p["adaNo"]), str(p["parselNo"]))
            for p in given
        ]
    else:
        numbers = number_parcels(grounds, seed)
    return assemble(grounds, numbers, plane)


def assemble(
    grounds: Sequence[Outline],
    numbers: Sequence[tuple[int, str, str]],
    plane: Plane,
) -> Cadastre:
    """Build a cadastre of disjoint grounds in metres; what collapses in the rounding is dropped."""
    parcels = []
    for ground, (mahalle, ada, parsel) in zip(grounds, numbers, strict=True):
        exact = plane.to_degrees(ground)
        outline = shapely.transform(exact, lambda xy: np.round(xy, DECIMALS))
        if not ground.is_empty and outline.area > 0:
            parcels.append(CadastreParcel(mahalle, ada, parsel, exact, outline, ground.area))
    return Cadastre(parcels)


def number_parcels(
    grounds: Sequence[Outline], seed: int, *, one_block: bool = False
) -> list[tuple[int, str, str]]:
    """Number parcels as surveyors do: a block is an ada, its parcels are numbered along it.

    With `one_block` all parcels are numbered together, in the ada 0 of villages. Some numbers are
    missing, because their parcels were divided or merged, and the resulting parcels have the
    numbers after the last.
    """
    dice = np.random.default_rng(seed)
    blocks = np.zeros(len(grounds), dtype=np.int64) if one_block else _blocks(grounds)
    order = sorted(set(blocks.tolist()), key=lambda b: _reading_order(grounds, blocks, b))
    numbers: list[tuple[int, str, str]] = [(0, "", "")] * len(grounds)
    for ada, block in enumerate(order, start=0 if one_block else 101):
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


def _blocks(grounds: Sequence[Outline]) -> NDArray[np.int64]:
    """Return the block of each parcel: parcels that touch, or nearly so, share one."""
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
    grounds: Sequence[Outline], blocks: NDArray[np.int64], block: int
) -> tuple[float, float]:
    first = grounds[int(np.flatnonzero(blocks == block)[0])]
    return (-round(first.bounds[3] / 200.0), first.bounds[0])


def _along(grounds: Sequence[Outline], members: NDArray[np.intp]) -> list[int]:
    """Return the members of a block from neighbour to neighbour, starting in the north-west."""
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


def _disjoint(grounds: Sequence[Outline]) -> list[Outline]:
    """Return the grounds without overlaps: of two that overlap the smaller stays whole."""
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


def areal(geometry: Geometry) -> Outline:
    """Return the polygons of a geometry as one outline."""
    return geometry if isinstance(geometry, Outline) else MultiPolygon(polygons_of(geometry))
