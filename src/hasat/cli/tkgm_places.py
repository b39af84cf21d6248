"""`hasat tkgm places`, and places by name where other commands take an area or a neighbourhood."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from hasat.cli import manners
from hasat.cli.house import open_house
from hasat.errors import SettingsError, UsageError
from hasat.messages import msg
from hasat.settings import Settings

if TYPE_CHECKING:
    from hasat.sources.tkgm.geometry import Area
    from hasat.sources.tkgm.places import Found
    from hasat.store import Store

_FILES = {".geojson", ".json", ".kml", ".kmz", ".gpkg", ".shp", ".fgb", ".zip", ".gml"}


def places(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Argument(help="A province, or province/district; none for all provinces.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ask the registry, whatever it said lately.")
    ] = False,
    json: manners.JsonFlag = False,
) -> None:
    """The provinces, districts or neighbourhoods of the registry, with their ids.

    The lists come from the registry itself (tkgm.registry.url) and are kept for
    tkgm.lists_age. Examples: `hasat tkgm places` · `hasat tkgm places Ankara/Çankaya`
    """
    settings = manners.settings_of(ctx)

    async def ask() -> "list[Found]":
        from hasat.sources.tkgm.places import Places

        async with open_house(settings) as store:
            return await Places(store, settings, fresh=fresh).within(path)

    found = manners.run_async(ask())
    rows: list[dict[str, Any]] = [
        {
            "id": one.place.id,
            "name": one.place.name,
            "kind": one.kind,
            "path": "/".join(one.path),
            "bbox": None if one.place.boundary is None else list(one.place.boundary.bounds),
        }
        for one in found
    ]

    def human() -> Table:
        table = Table("id", "name", "path")
        for row in rows:
            table.add_row(str(row["id"]), row["name"], row["path"])
        return table

    manners.emit(rows, json=json, human=human)


def area_of(settings: Settings, text: str) -> "Area":
    """The area of a file, a box, or a place of the registry by its name."""
    from hasat.sources.tkgm.geometry import read_area

    is_box = "," in text and "/" not in text
    if is_box or Path(text).is_file() or Path(text).suffix.lower() in _FILES:
        return read_area(text)

    async def ask() -> "Found":
        from hasat.sources.tkgm.places import Places

        async with open_house(settings) as store:
            return await Places(store, settings).find(text)

    try:
        return manners.run_async(ask()).boundary
    except SettingsError as error:
        raise UsageError(
            msg(
                "{text!r} is neither a file nor a box, and cannot be looked up as a place. {error}",
                text=text,
                error=error.message,
            ),
            remedy=error.remedy,
        ) from error


async def mahalle_id(store: "Store", settings: Settings, text: str) -> int:
    """The id of a neighbourhood, given as such or by its name."""
    if text.isdecimal():
        return int(text)
    from hasat.sources.tkgm.places import Places

    found = await Places(store, settings).find(text)
    if found.kind != "neighbourhood":
        raise UsageError(
            msg("{text!r} is a {kind}, not a neighbourhood.", text=text, kind=found.kind),
            remedy=msg(
                "`hasat tkgm places {path!r}` lists what is in it.", path="/".join(found.path)
            ),
        )
    return found.place.id
