"""The page of one parcel: map, attributes, and history with the outlines before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import shapely
from psycopg import sql
from shapely import MultiPolygon, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.feed.changes import Change, history
from hasat.pages import PageRequest
from hasat.pages.differences import ChangeRow, describe_change
from hasat.sources.tkgm.geometry import Outline, Plane
from hasat.sources.tkgm.selection import Box
from hasat.sources.tkgm.source import PARCELS

# The longer side of a drawing, and its margin.
_DRAWING, _MARGIN = 160.0, 6.0
# Around the parcel on the map, so that its neighbours are seen: in degrees.
_SURROUNDINGS = 0.0006


@dataclass(frozen=True)
class Drawing:
    """The outlines before and after a change as SVG paths at one scale; None if there is none."""

    width: float
    height: float
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ParcelChange:
    """A change of the parcel, with a drawing if its outline changed."""

    change: ChangeRow
    drawing: Drawing | None


@dataclass(frozen=True)
class ParcelPage:
    """The data of the page; the history is newest first."""

    key: str
    title: str | None
    body: Mapping[str, Any] | None
    """None if the parcel is not stored now."""
    first_seen_at: datetime | None
    changed_at: datetime | None
    bounds: Box | None
    history: Sequence[ParcelChange]
    base_map: str | None
    base_map_credit: str


async def parcel(request: PageRequest) -> ParcelPage:
    """Load a parcel by its key."""
    key = request.text("key")
    async with request.store.snapshot() as conn:
        found = await conn.execute(
            sql.SQL("SELECT body, first_seen_at, changed_at FROM {} WHERE key = %s").format(
                PARCELS.table
            ),
            [key],
        )
        body, first_seen_at, changed_at = await found.fetchone() or (None, None, None)
        changes = await history(conn, PARCELS, key)
    last = body if body is not None or not changes else changes[-1].before
    outline = _outline(last)
    return ParcelPage(
        key=key,
        title=PARCELS.title_of(last),
        body=body,
        first_seen_at=first_seen_at,
        changed_at=changed_at,
        bounds=None if outline is None else Box(*outline.buffer(_SURROUNDINGS).bounds),
        history=[ParcelChange(describe_change(one), _drawing(one)) for one in reversed(changes)],
        base_map=request.context.settings.serve.base_map,
        base_map_credit=request.context.settings.serve.base_map_credit,
    )


def parcel_status(data: ParcelPage) -> int:
    """Return 404 for a parcel of which nothing is stored."""
    return 200 if data.body is not None or data.history else 404


def _drawing(change: Change) -> Drawing | None:
    before, after = _outline(change.before), _outline(change.body)
    return draw_outlines(before, after)


def draw_outlines(before: Outline | None, after: Outline | None) -> Drawing | None:
    """Draw two outlines at one scale, north up; None if they are the same."""
    both = [one for one in (before, after) if one is not None]
    if not both or (before is not None and after is not None and before.equals(after)):
        return None
    plane = Plane.around(both)
    metres = [plane.to_metres(one) for one in both]
    west, south, east, north = shapely.total_bounds(metres).tolist()
    scale = (_DRAWING - 2 * _MARGIN) / max(east - west, north - south, 0.1)

    def path(outline: Outline | None) -> str | None:
        if outline is None:
            return None
        polygons = shapely.get_parts(plane.to_metres(outline))
        rings = [ring for one in polygons for ring in (one.exterior, *one.interiors)]
        return " ".join(
            "M"
            + "L".join(
                f"{_MARGIN + (x - west) * scale:.1f},{_MARGIN + (north - y) * scale:.1f}"
                for x, y in ring.coords[:-1]
            )
            + "Z"
            for ring in rings
        )

    return Drawing(
        round((east - west) * scale + 2 * _MARGIN, 1),
        round((north - south) * scale + 2 * _MARGIN, 1),
        path(before),
        path(after),
    )


def _outline(body: Mapping[str, Any] | None) -> Outline | None:
    """Return the outline of a parcel; None if it has none that can be drawn."""
    if body is None or not body.get("geometry"):
        return None
    try:
        found = shape(body["geometry"])
    except (ShapelyError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if isinstance(found, Polygon | MultiPolygon) and not found.is_empty else None
