"""The area that a page asks about: typed, drawn, uploaded, or a place by its name."""

import hashlib
import json
import re
from dataclasses import dataclass

import shapely
from psycopg.types.json import Jsonb
from shapely.geometry import mapping, shape

from hasat.errors import NotFoundError, SettingsError, UsageError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.geometry import (
    Outline,
    check_in_turkey,
    check_size,
    parse_drawn_area,
)
from hasat.sources.tkgm.places import Places
from hasat.sources.tkgm.settings import TkgmSettings
from hasat.store import Store

_NUMBERS = re.compile(r"[-+0-9.,;eE\s]*")
_DAYS = 90
_MAX_NAME = 100


@dataclass(frozen=True)
class PlannedArea:
    """An area, what names it in an address, and its title."""

    text: str
    file: str | None
    outline: Outline

    @property
    def address(self) -> dict[str, str]:
        """The parameters of an address that lead to this area."""
        return {"area": self.text} if self.file is None else {"file": self.file}


async def find_area(
    store: Store, settings: Settings, *, text: str, file: str, may_fetch: bool
) -> PlannedArea | None:
    """Return the area of a page's parameters; None without any.

    The place of a name is loaded from the registry only if `may_fetch`.
    """
    largest = settings.section(TkgmSettings).max_area_km2
    if file:
        planned = await load_area(store, file)
    elif not text:
        return None
    elif _NUMBERS.fullmatch(text):
        return PlannedArea(text, None, parse_drawn_area(text, largest))
    else:
        outline = await place_area(Places(store, settings, only_stored=not may_fetch), text)
        planned = PlannedArea(text, None, outline)
    check_in_turkey(planned.outline)
    check_size(planned.outline, largest)
    return planned


async def place_area(places: Places, text: str) -> Outline:
    """Return the boundary of a place; raise UsageError if places cannot be looked up."""
    try:
        return (await places.find(text)).boundary
    except SettingsError as error:
        raise UsageError(
            msg(
                "{text!r} is neither a file nor a box, and cannot be looked up as a place. {error}",
                text=text,
                error=error.message,
            ),
            remedy=error.remedy,
        ) from error


async def save_area(store: Store, name: str, outline: Outline) -> PlannedArea:
    """Store an uploaded area; delete those that were not used for long."""
    content = mapping(outline)
    number = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO tkgm.area (id, name, outline) VALUES (%s, %s, %s) ON CONFLICT (id)"
            " DO UPDATE SET name = EXCLUDED.name, stored_at = EXCLUDED.stored_at",
            (number, name[:_MAX_NAME], Jsonb(content)),
        )
        await conn.execute(
            "DELETE FROM tkgm.area WHERE stored_at < clock_timestamp() - %s * interval '1 day'",
            [_DAYS],
        )
    return PlannedArea(name[:_MAX_NAME], number, outline)


async def load_area(store: Store, number: str) -> PlannedArea:
    """Return an uploaded area."""
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT name, outline FROM tkgm.area WHERE id = %s", [number])
        row = await cursor.fetchone()
    if row is None:
        raise NotFoundError(
            msg("The uploaded area is not stored any more."), remedy=msg("Upload the file again.")
        )
    name, content = row
    outline = shape(content)
    assert isinstance(outline, Outline)
    return PlannedArea(name, number, outline)


def drawn(outline: Outline, most: int = 2_000) -> Outline:
    """Return an outline with few enough corners to be part of a page."""
    tolerance = 0.00002
    while int(shapely.get_num_coordinates(outline)) > most:
        simpler = shapely.simplify(outline, tolerance)
        if simpler.is_empty or tolerance > 1:
            break
        outline, tolerance = simpler, tolerance * 4
    return outline
