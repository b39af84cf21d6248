"""Draw the result of a scan: parcels, empty points, and areas still unknown."""

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
from hasat.sources.tkgm.scan.candidates import UnknownArea

_PIXELS = 1600
_MARGIN = 30
_CAPTION = 44
# Drawn larger and scaled down, so that lines are smooth.
_OVERSAMPLING = 2

_BACKGROUND = (250, 249, 246)
_AREA = (236, 232, 224)
_EDGE = (160, 150, 135)
_PARCEL = (190, 214, 186)
_OUTLINE = (72, 110, 84)
_UNKNOWN = (224, 122, 60)
_EMPTY = (120, 120, 140)
_TEXT = (40, 44, 48)
_EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp")


def check_picture_extension(path: Path) -> None:
    """Raise UsageError for a file that cannot be written: its format or its folder."""
    if path.suffix.lower() not in _EXTENSIONS:
        raise UsageError(
            msg("{path} has no extension of a supported image format.", path=path.name),
            remedy=msg("Use one of {extensions}.", extensions=", ".join(_EXTENSIONS)),
        )
    if not path.parent.is_dir():
        raise UsageError(
            msg("The folder {folder} does not exist.", folder=path.parent),
            remedy=msg("Create it, or choose another one."),
        )


def draw(
    path: Path,
    area: Geometry,
    parcels: Sequence[Geometry],
    empty: Sequence[Point],
    unknown: Sequence[UnknownArea],
) -> None:
    """Write the picture, north up, with the same scale in both directions."""
    check_picture_extension(path)
    canvas = _Canvas(area)
    canvas.fill([area], _AREA, _EDGE)
    canvas.fill([one.geometry for one in unknown], _UNKNOWN, None)
    canvas.fill(parcels, _PARCEL, _OUTLINE)
    canvas.dots(empty, _EMPTY)
    canvas.with_legend(
        [
            (_PARCEL, f"{len(parcels):,} parcels"),
            (_EMPTY, f"{len(empty):,} points without parcel"),
            (_UNKNOWN, f"{len(unknown):,} areas still unknown"),
        ]
    ).save(path)


class _Canvas:
    """A canvas that scales metres to the picture."""

    def __init__(self, area: Geometry) -> None:
        self._plane = Plane.around([area])
        west, south, east, north = shapely.bounds(self._plane.to_metres(area)).tolist()
        longest = max(east - west, north - south, 1.0)
        self._scale = (_PIXELS - 2 * _MARGIN) * _OVERSAMPLING / longest
        self._corner = np.array([west, north])
        width = int((east - west) * self._scale) + 2 * _MARGIN * _OVERSAMPLING
        height = int((north - south) * self._scale) + (2 * _MARGIN + _CAPTION) * _OVERSAMPLING
        self._width = max(width, 700 * _OVERSAMPLING)
        self._image = Image.new("RGB", (self._width, height), _BACKGROUND)
        self._draw = ImageDraw.Draw(self._image)

    def fill(
        self,
        shapes: Iterable[Geometry],
        colour: tuple[int, int, int],
        edge: tuple[int, int, int] | None,
    ) -> None:
        """Fill shapes; holes are masked, so that whatever lies in them stays visible."""
        for one in shapes:
            for part in shapely.get_parts(self._plane.to_metres(one)).tolist():
                if shapely.get_type_id(part) != shapely.GeometryType.POLYGON:
                    continue
                rings = [self._pixels(ring) for ring in shapely.get_rings(part).tolist()]
                if len(rings) == 1:
                    self._draw.polygon(_flat(rings[0]), fill=colour)
                else:
                    self._with_holes(rings, colour)
                for ring in rings if edge is not None else ():
                    self._draw.line(_flat(ring), fill=edge, width=_OVERSAMPLING)

    def dots(self, points: Sequence[Point], colour: tuple[int, int, int]) -> None:
        reach = 1.2 * _OVERSAMPLING
        for one in points:
            where = self._plane.to_metres(shapely.Point(one.lon, one.lat))
            x, y = self._pixels(where)[0].tolist()
            self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=colour)

    def with_legend(self, legend: Sequence[tuple[tuple[int, int, int], str]]) -> Image.Image:
        x, y = _MARGIN * _OVERSAMPLING, self._image.height - _CAPTION * _OVERSAMPLING
        font = ImageFont.load_default(15 * _OVERSAMPLING)
        for colour, text in legend:
            side = 14 * _OVERSAMPLING
            self._draw.rectangle((x, y, x + side, y + side), fill=colour, outline=_TEXT)
            self._draw.text(
                (x + side + 6 * _OVERSAMPLING, y - 2 * _OVERSAMPLING), text, fill=_TEXT, font=font
            )
            x += int(side + 26 * _OVERSAMPLING + self._draw.textlength(text, font=font))
        size = (self._image.width // _OVERSAMPLING, self._image.height // _OVERSAMPLING)
        return self._image.resize(size, Image.Resampling.LANCZOS)

    def _pixels(self, geometry: Geometry) -> NDArray[np.float64]:
        xy = (shapely.get_coordinates(geometry) - self._corner) * [self._scale, -self._scale]
        return np.asarray(xy + _MARGIN * _OVERSAMPLING, dtype=np.float64)

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
