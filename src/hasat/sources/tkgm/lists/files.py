"""Write the result of a list: as a table with every row, or as a map with the rows not found."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hasat.clock import ISTANBUL
from hasat.messages import Language, translate
from hasat.sources.tkgm.export import ExportOptions, check_extension, export
from hasat.sources.tkgm.features import StoredParcel, unify_names
from hasat.sources.tkgm.lists.fetch import ListResult, RowResult
from hasat.tables import Cell, FileFormat, format_of_name, replacing_file, write_table

_ADDED = ("ilAd", "ilceAd", "mahalleAd", "mahalleId", "adaNo", "parselNo", "alan", "nitelik")
_PLACE = ("lat", "lon")
_FETCHED, _NOTE = "fetchedAt", "note"
_TABLES = (".csv", ".tsv", ".txt", ".xlsx")


def check_result_file(path: Path, options: ExportOptions) -> None:
    """Raise UsageError for a file that cannot be written."""
    check_extension(path.with_suffix(".csv") if is_table(path) else path, options)


def is_table(path: Path) -> bool:
    """Return whether a file holds rows rather than outlines."""
    return path.suffix.lower() in _TABLES


def write_result(
    result: ListResult, path: Path, options: ExportOptions, language: Language
) -> Path | None:
    """Write the result; return the second file, with the rows that have no parcel.

    A table has every row in its order. Other formats have the parcels that were found, with the
    other columns of their rows, and the rest is a table next to them.
    """
    if is_table(path):
        with replacing_file(path) as file:
            write_rows(result, file, format_of_name(path.name), language)
        return None
    export(found_parcels(result), path, options)
    rest = [one for one in result.results if one.parcel is None]
    missing = path.with_name(f"{path.stem}.missing.csv")
    if not rest:
        missing.unlink(missing_ok=True)
        return None
    with replacing_file(missing) as file:
        write_rows(ListResult(result.source, rest), file, "csv", language)
    return missing


def write_rows(
    result: ListResult, file: IO[bytes], file_format: FileFormat, language: Language
) -> None:
    """Write every row: its own columns, those of its parcel, and why there is none."""
    writer = write_table(file, file_format)
    writer.add([[*result.source.headings, *_ADDED, *_PLACE, _FETCHED, _NOTE]])
    width = len(result.source.headings)
    parcels = iter(unify_names([one.parcel for one in result.results if one.parcel]))
    for one in result.results:
        own = [*one.row.cells, *[None] * width][:width]
        parcel = None if one.parcel is None else next(parcels)
        writer.add([[*own, *_parcel_cells(parcel), _note(one, language)]])
    writer.close()


def found_parcels(result: ListResult) -> list[StoredParcel]:
    """Return the parcels with the columns of their rows among the properties."""
    found = [one for one in result.results if one.parcel is not None]
    parcels = unify_names([one.parcel for one in found if one.parcel])
    return [
        StoredParcel(
            {**(parcel.feature or {}), "properties": dict(_properties(result, one, parcel))},
            parcel.fetched_at,
        )
        for one, parcel in zip(found, parcels, strict=True)
    ]


def _properties(
    result: ListResult, one: RowResult, parcel: StoredParcel
) -> Iterator[tuple[str, Any]]:
    known = {} if parcel.feature is None else parcel.feature["properties"]
    yield from known.items()
    taken = {name.casefold() for name in (*known, _FETCHED)}
    for heading, cell in zip(result.source.headings, one.row.cells, strict=False):
        name, number = heading, 1
        while name.casefold() in taken:
            number += 1
            name = f"{heading}_{number}"
        taken.add(name.casefold())
        yield name, cell if cell is None or isinstance(cell, str | int | float) else str(cell)


def _parcel_cells(parcel: StoredParcel | None) -> list[Cell]:
    if parcel is None:
        return [None] * (len(_ADDED) + len(_PLACE) + 1)
    properties = parcel.properties
    point = None if parcel.geometry is None else parcel.geometry.representative_point()
    place = [None, None] if point is None else [round(point.y, 6), round(point.x, 6)]
    at = parcel.fetched_at.astimezone(ISTANBUL).replace(tzinfo=None, microsecond=0)
    return [*(properties.get(name) for name in _ADDED), *place, at]


def _note(one: RowResult, language: Language) -> str:
    return "" if one.reason is None else translate(one.reason, language)
