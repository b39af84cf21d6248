"""A picture of a scan's result: parcels, points that were empty, and what is still unknown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from shapely import Geometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.geometry import Plane
from hasat.sources.tkgm.registry.wire import Point
from hasat.sources.tkgm.scan.scan_request import Unknown

_PIXELS = 1600
_MARGIN = 30
_CAPTION = 44
# Drawn larger and made smaller, so that lines are smooth.
_FINER = 2

_PAPER = (250, 249, 246)
_AREA = (236, 232, 224)
_EDGE = (160, 150, 135)
_PARCEL = (190, 214, 186)
_OUTLINE = (72, 110, 84)
_UNKNOWN = (224, 122, 60)
_EMPTY = (120, 120, 140)
_INK = (40, 44, 48)
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def check_name(path: Path) -> None:
    """Refuses a name for which there is no form of picture."""
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(
            msg("{path} has no ending that names a kind of picture.", path=path.name),
            remedy=msg("Use one of {endings}.", endings=", ".join(_ENDINGS)),
        )


def draw(
    path: Path,
    area: Geometry,
    parcels: Sequence[Geometry],
    empty: Sequence[Point],
    unknown: Sequence[Unknown],
) -> None:
    """Writes the picture; north is up, a metre is as long in each direction."""
    check_name(path)
    sheet = _Sheet(area)
    sheet.fill([area], _AREA, _EDGE)
    sheet.fill([one.ground for one in unknown], _UNKNOWN, None)
    sheet.fill(parcels, _PARCEL, _OUTLINE)
    sheet.dots(empty, _EMPTY)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.finished(
        [
            (_PARCEL, f"{len(parcels):,} parcels"),
            (_EMPTY, f"{len(empty):,} points without one"),
            (_UNKNOWN, f"{len(unknown):,} places still unknown"),
        ]
    ).save(path)


class _Sheet:
    """A drawing in metres that fits into the picture."""

    def __init__(self, area: Geometry) -> None:
        self._plane = Plane.around([area])
        west, south, east, north = shapely.bounds(self._plane.to_metres(area)).tolist()
        longest = max(east - west, north - south, 1.0)
        self._scale = (_PIXELS - 2 * _MARGIN) * _FINER / longest
        self._corner = np.array([west, north])
        width = int((east - west) * self._scale) + 2 * _MARGIN * _FINER
        height = int((north - south) * self._scale) + (2 * _MARGIN + _CAPTION) * _FINER
        self._width = max(width, 700 * _FINER)
        self._image = Image.new("RGB", (self._width, height), _PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def fill(
        self,
        grounds: Iterable[Geometry],
        colour: tuple[int, int, int],
        edge: tuple[int, int, int] | None,
    ) -> None:
        """Grounds with holes: each in a mask of its own, so that what lies in a hole is kept."""
        for ground in grounds:
            for part in shapely.get_parts(self._plane.to_metres(ground)).tolist():
                if shapely.get_type_id(part) != shapely.GeometryType.POLYGON:
                    continue
                rings = [self._pixels(ring) for ring in shapely.get_rings(part).tolist()]
                if len(rings) == 1:
                    self._draw.polygon(_flat(rings[0]), fill=colour)
                else:
                    self._with_holes(rings, colour)
                for ring in rings if edge is not None else ():
                    self._draw.line(_flat(ring), fill=edge, width=_FINER)

    def dots(self, points: Sequence[Point], colour: tuple[int, int, int]) -> None:
        reach = 1.2 * _FINER
        for one in points:
            where = self._plane.to_metres(shapely.Point(one.lon, one.lat))
            x, y = self._pixels(where)[0].tolist()
            self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=colour)

    def finished(self, legend: Sequence[tuple[tuple[int, int, int], str]]) -> Image.Image:
        x, y = _MARGIN * _FINER, self._image.height - _CAPTION * _FINER
        font = ImageFont.load_default(15 * _FINER)
        for colour, text in legend:
            side = 14 * _FINER
            self._draw.rectangle((x, y, x + side, y + side), fill=colour, outline=_INK)
            self._draw.text((x + side + 6 * _FINER, y - 2 * _FINER), text, fill=_INK, font=font)
            x += int(side + 26 * _FINER + self._draw.textlength(text, font=font))
        size = (self._image.width // _FINER, self._image.height // _FINER)
        return self._image.resize(size, Image.Resampling.LANCZOS)

    def _pixels(self, geometry: Geometry) -> NDArray[np.float64]:
        xy = (shapely.get_coordinates(geometry) - self._corner) * [self._scale, -self._scale]
        return np.asarray(xy + _MARGIN * _FINER, dtype=np.float64)

    def _with_holes(
        self, rings: Sequence[NDArray[np.float64]], colour: tuple[int, int, int]
    ) -> None:
        low = np.floor(rings[0].min(axis=0)).astype(int)
        size = (np.ceil(rings[0].max(axis=0)).astype(int) - low + 1).tolist()
        mask = Image.new("1", (size[0], size[1]), 0)
        pen = ImageDraw.Draw(mask)
        for number, ring in enumerate(rings):
            pen.polygon(_flat(ring - low), fill=0 if number else 1)
        self._image.paste(colour, (int(low[0]), int(low[1])), mask)


def _flat(ring: NDArray[np.float64]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in ring.tolist()]
