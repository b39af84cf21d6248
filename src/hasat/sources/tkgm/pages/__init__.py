"""The pages of the parcels."""

from importlib.resources import files

from hasat.messages import template
from hasat.pages import Action, NavigationEntry, Page, SourcePages
from hasat.sources.tkgm.areas.uploads import MAX_FILE_BYTES
from hasat.sources.tkgm.pages.parcel import parcel, parcel_status
from hasat.sources.tkgm.pages.parcels import (
    Parcels,
    parcels,
    remove_scan,
    start_scan,
    upload_area,
)

__all__ = ["PAGES"]


def _status(data: Parcels) -> int:
    return 200 if data.problem is None else data.problem.status


PAGES = SourcePages(
    (
        Page("/parcels", "parcels", parcels, "parcels", datasets=("parcels",), status=_status),
        Page(
            "/parcels/record",
            "parcel",
            parcel,
            "parcels",
            datasets=("parcels",),
            status=parcel_status,
        ),
    ),
    files("hasat.sources.tkgm") / "templates",
    (NavigationEntry("parcels", template("Parcels"), "/parcels", order=60),),
    (
        Action("/parcels/scan", "run.queue", start_scan),
        Action("/parcels/scan/delete", "scan.delete", remove_scan),
        Action("/parcels/area", "area.upload", upload_area, max_bytes=MAX_FILE_BYTES),
    ),
    files("hasat.sources.tkgm") / "static",
    labels={
        "quality": {
            "fast": template("Fast"),
            "standard": template("Standard"),
            "thorough": template("Thorough"),
        },
        "format": {
            "gpkg": template("GeoPackage (QGIS)"),
            "geojson": template("GeoJSON"),
            "shp": template("Shapefile (zip)"),
            "fgb": template("FlatGeobuf"),
            "parquet": template("GeoParquet"),
            "csv": template("CSV"),
            "kml": template("KML"),
            "kmz": template("KMZ"),
            "dxf": template("DXF (CAD)"),
        },
        "field": {
            **dict.fromkeys(("il", "properties.ilAd"), template("Province")),
            **dict.fromkeys(("ilce", "properties.ilceAd"), template("District")),
            **dict.fromkeys(("mahalle", "properties.mahalleAd"), template("Neighbourhood")),
            **dict.fromkeys(("ada_no", "properties.adaNo"), template("Block")),
            **dict.fromkeys(("parsel_no", "properties.parselNo"), template("Parcel")),
            **dict.fromkeys(("area", "properties.alan"), template("Area (m²)")),
            "mahalle_id": template("Neighbourhood number"),
            "properties.nitelik": template("Land use"),
            "properties.mevkii": template("Locality"),
            "properties.pafta": template("Map sheet"),
            "properties": template("Attributes"),
            "properties.ilId": template("Province number"),
            "properties.ilceId": template("District number"),
            "properties.mahalleId": template("Neighbourhood number"),
            "properties.durum": template("Status"),
            "properties.zeminKmdurum": template("Title type"),
            "properties.ozet": template("Summary"),
            "properties.fetchedAt": template("Last updated"),
            "geometry": template("Outline"),
            "bbox": template("Bounding box"),
        },
        "place": {
            "parcel": template("Parcel"),
            "neighbourhood": template("Neighbourhood"),
            "district": template("District"),
            "province": template("Province"),
        },
    },
    records={"parcels": "/parcels/record?key={key}"},
)
