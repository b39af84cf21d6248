"""Write parcels to files that GIS and CAD programs, spreadsheets and databases read."""

from hasat.sources.tkgm.export.crs import check_crs
from hasat.sources.tkgm.export.formats import (
    ExportOptions,
    check_extension,
    export,
    export_unknown,
    file_extension,
    without_parcels,
)

__all__ = [
    "ExportOptions",
    "check_crs",
    "check_extension",
    "export",
    "export_unknown",
    "file_extension",
    "without_parcels",
]
