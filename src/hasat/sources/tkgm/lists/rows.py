"""The rows of a list of parcels: which column says what, and what each row asks for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hasat.errors import UsageError
from hasat.messages import join, msg
from hasat.sources.tkgm.registry.lookup import check_point
from hasat.sources.tkgm.registry.wire import Point
from hasat.tables import Cell, Row, cell_text, is_empty, read_table
from hasat.text import fold

# The headings of each role, folded and without anything but letters and digits.
_HEADINGS: Mapping[str, tuple[str, ...]] = {
    "il": ("il", "iladi", "ilad", "sehir", "province", "city"),
    "ilce": ("ilce", "ilceadi", "ilcead", "district"),
    "mahalle": (
        "mahalle", "mahalleadi", "mahallead", "mahallekoy", "mahkoy", "koy", "mah", "koymahalle",
        "neighbourhood", "neighborhood",
    ),
    "mahalle_id": ("mahalleid", "mahalleno", "mahallekodu", "tapumahalleno"),
    "ada": ("ada", "adano", "block"),
    "parsel": ("parsel", "parselno", "parcel", "parselnumarasi"),
    "ada_parsel": ("adaparsel", "adaparselno", "adanoparselno"),
    "lat": ("lat", "latitude", "enlem", "y", "ykoordinat"),
    "lon": ("lon", "lng", "long", "longitude", "boylam", "x", "xkoordinat"),
}  # fmt: skip
_HEADING_ROWS = 20
MAX_ROWS = 100_000
_NUMBER = re.compile(r"[^/\x00-\x1f\x7f]{1,60}")


@dataclass(frozen=True)
class NamedParcel:
    """A parcel by its numbers, in a neighbourhood that is an id or a path of names."""

    mahalle: int | str
    ada: str
    parsel: str


Target = NamedParcel | Point


@dataclass(frozen=True)
class ListRow:
    """One row: its other columns, and what it asks for or why that is unclear."""

    number: int
    cells: Row
    target: Target | None
    problem: str | None = None


@dataclass(frozen=True)
class ParcelList:
    """The rows of a file below its headings."""

    headings: tuple[str, ...]
    rows: tuple[ListRow, ...]


def read_list(path: Path, name: str | None = None) -> ParcelList:
    """Read a CSV, TSV or XLSX file with headings; raise UsageError if it is no list of parcels."""
    with read_table(
        path, score=lambda cells: float(len(cells)), looked_for=msg("parcels"), name=name
    ) as table:
        if table.count > MAX_ROWS:
            raise UsageError(
                msg("{name} has more than {limit:,} rows.", name=table.name, limit=MAX_ROWS),
                remedy=msg("Divide it into several files."),
            )
        above, roles = _find_headings(table.name, table.rows())
        width = table.width
        rows = list(table.rows())
    headings = tuple(_heading(rows[above - 1], place) for place in range(width))
    return ParcelList(
        headings,
        tuple(
            _parse_row(number, row, roles)
            for number, row in enumerate(rows[above:], start=above + 1)
            if not all(is_empty(cell) for cell in row)
        ),
    )


def _find_headings(name: str, rows: Iterable[Row]) -> tuple[int, Mapping[str, int]]:
    """Return the number of rows up to the headings, and the place of each role."""
    first: Sequence[Cell] = ()
    for number, row in enumerate(islice(rows, _HEADING_ROWS), start=1):
        first = first or row
        roles: dict[str, int] = {}
        for place, cell in enumerate(row):
            plain = re.sub(r"[^a-z0-9]", "", fold(cell_text(cell)))
            for role, names in _HEADINGS.items():
                if plain in names:
                    roles.setdefault(role, place)
        if _is_enough(roles):
            return number, roles
    shown = join((cell_text(cell)[:30] for cell in first[:12]), ", ")
    raise UsageError(
        msg("{name} does not say which parcels. Its first row is: {row}.", name=name, row=shown),
        remedy=msg(
            "Give the columns headings: il, ilçe, mahalle (or mahalleId), ada and parsel, or lat "
            "and lon."
        ),
    )


def _is_enough(roles: Mapping[str, int]) -> bool:
    place = "mahalle_id" in roles or {"il", "ilce", "mahalle"} <= roles.keys()
    numbers = "parsel" in roles or "ada_parsel" in roles
    return (place and numbers) or {"lat", "lon"} <= roles.keys()


def _heading(row: Row, place: int) -> str:
    text = cell_text(row[place]).strip() if place < len(row) else ""
    return text or str(place + 1)


def _parse_row(number: int, row: Row, roles: Mapping[str, int]) -> ListRow:
    texts = {role: _text(row[place]) if place < len(row) else "" for role, place in roles.items()}
    try:
        return ListRow(number, row, _target(texts))
    except UsageError as error:
        return ListRow(number, row, None, error.message)


def _text(cell: Cell) -> str:
    """Return a cell as text; a number that Excel stores as 2705.0 is 2705."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell)
    return cell_text(cell).strip()


def _target(texts: Mapping[str, str]) -> Target:
    """Return what a row asks for: by its numbers where it has them, else by its point."""
    ada, parsel = texts.get("ada", ""), texts.get("parsel", "")
    if both := texts.get("ada_parsel", ""):
        ada, slash, parsel = both.partition("/")
        if not slash:
            raise UsageError(msg("{both!r} is not ada/parsel.", both=both))
    ada, parsel = ada.strip(), parsel.strip()
    if parsel:
        if not (_NUMBER.fullmatch(ada or "0") and _NUMBER.fullmatch(parsel)):
            raise UsageError(msg("{text!r} is not ada/parsel.", text=f"{ada}/{parsel}"))
        # Parcels of villages have no block.
        return NamedParcel(_mahalle(texts), ada or "0", parsel)
    if texts.get("lat") or texts.get("lon"):
        return _point(texts.get("lat", ""), texts.get("lon", ""))
    raise UsageError(msg("The row has neither a parcel number nor a point."))


def _mahalle(texts: Mapping[str, str]) -> int | str:
    if number := texts.get("mahalle_id", ""):
        if not number.isdecimal():
            raise UsageError(msg("{number!r} is not the id of a neighbourhood.", number=number))
        return int(number)
    names = [texts.get(role, "") for role in ("il", "ilce", "mahalle")]
    if not all(names):
        raise UsageError(msg("The row lacks a province, district or neighbourhood."))
    return "/".join(name.replace("/", " ") for name in names)


def _point(lat: str, lon: str) -> Point:
    try:
        north, east = (float(text.replace(",", ".")) for text in (lat, lon))
    except ValueError:
        raise UsageError(
            msg("{lat}, {lon} are not latitude and longitude.", lat=lat or "-", lon=lon or "-")
        ) from None
    return check_point(north, east)
