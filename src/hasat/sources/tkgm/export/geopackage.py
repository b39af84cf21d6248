"""The style that QGIS reads from a GeoPackage: parcels coloured by use and labelled."""

import sqlite3
from contextlib import closing
from pathlib import Path
from xml.sax.saxutils import quoteattr

# Texts of the registry's `nitelik`, as in the map of the dashboard; the first match counts.
_USES = (
    (
        "Yapı",
        "#b5562f",
        "apart|bina|ev\\b|evi\\b|mesken|k[aâ]rgir|beton|iş ?yeri|dükkan|fabrika|depo|okul|cami",
    ),
    ("Bahçe", "#6f9e3c", "bahçe|bağ\\b|bağı\\b|zeytin|fındık|meyve|narenciye|sera"),
    ("Tarla", "#d2a93a", "tarla|ekilebilir"),
    ("Yeşil alan", "#2f7d55", "orman|mera|çayır|park|ağaç|koru"),
    ("Arsa", "#8173b8", "arsa"),
)
_OTHER = ("Diğer", "#8a8f86")
_UNKNOWN = "#c9302c"
# Labels appear from this scale on.
_LABEL_SCALE = 5000
_LABEL = '"adaNo" || \'/\' || "parselNo"'

_TABLE = """
CREATE TABLE IF NOT EXISTS layer_styles (
    id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    f_table_catalog TEXT(256), f_table_schema TEXT(256), f_table_name TEXT(256),
    f_geometry_column TEXT(256), styleName TEXT(30), styleQML TEXT, styleSLD TEXT,
    useAsDefault BOOLEAN, description TEXT, owner TEXT(30), ui TEXT(30),
    update_time DATETIME DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now'))
)
"""
_CONTENTS = """
INSERT OR IGNORE INTO gpkg_contents (table_name, data_type, identifier)
VALUES ('layer_styles', 'attributes', 'layer_styles')
"""
_STYLE = """
INSERT INTO layer_styles (f_table_catalog, f_table_schema, f_table_name, f_geometry_column,
    styleName, styleQML, styleSLD, useAsDefault, description, owner)
SELECT '', '', table_name, column_name, ?, ?, '', 1, ?, ''
FROM gpkg_geometry_columns WHERE table_name = ?
"""


def add_style(path: Path, layer: str) -> None:
    """Store the default style of a layer in the file."""
    qml, about = (
        (_parcel_style(), "Kullanıma göre renkler, ada/parsel etiketleri")
        if layer == "parcels"
        else (_unknown_style(), "Parsel bulunabilecek alanlar")
    )
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(_TABLE)
        file.execute(_CONTENTS)
        file.execute("DELETE FROM layer_styles WHERE f_table_name = ?", [layer])
        file.execute(_STYLE, [layer, qml, about, layer])


def _parcel_style() -> str:
    lowered = "lower(replace(replace(coalesce(\"nitelik\",''),'İ','i'),'I','ı'))"
    rules, symbols = [], []
    for number, (name, colour, words) in enumerate(_USES):
        words = words.replace("\\", "\\\\")
        rules.append((name, f"regexp_match({lowered}, '{words}')", number))
        symbols.append(_fill(number, colour))
    symbols.append(_fill(len(_USES), _OTHER[1]))
    rules.append((_OTHER[0], "ELSE", len(_USES)))
    # The first rule that matches decides: a rule excludes those before it.
    exclusive, before = [], list[str]()
    for name, matches, number in rules:
        full = matches if matches == "ELSE" else " AND ".join([*before, matches])
        exclusive.append(
            f'<rule key="{{{number}}}" label={quoteattr(name)} symbol="{number}"'
            f" filter={quoteattr(full)}/>"
        )
        before.append(f"NOT {matches}")
    renderer = (
        '<renderer-v2 type="RuleRenderer" symbollevels="0" enableorderby="0" forceraster="0">'
        f'<rules key="{{root}}">{"".join(exclusive)}</rules>'
        f"<symbols>{''.join(symbols)}</symbols></renderer-v2>"
    )
    return _document(renderer, _labels(_LABEL))


def _unknown_style() -> str:
    renderer = (
        '<renderer-v2 type="singleSymbol" symbollevels="0" enableorderby="0" forceraster="0">'
        f"<symbols>{_fill(0, _UNKNOWN)}</symbols></renderer-v2>"
    )
    return _document(renderer, _labels("round(\"chance\" * 100) || ' %'"))


def _document(renderer: str, labels: str) -> str:
    return (
        "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>"
        '<qgis version="3.28.0" styleCategories="Symbology|Labeling" labelsEnabled="1">'
        f"{renderer}{labels}</qgis>"
    )


def _fill(number: int, colour: str) -> str:
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    options = {
        "color": f"{red},{green},{blue},150",
        "outline_color": "60,60,60,255",
        "outline_width": "0.2",
        "outline_width_unit": "MM",
        "style": "solid",
        "outline_style": "solid",
    }
    listed = "".join(
        f'<Option type="QString" name="{name}" value="{value}"/>' for name, value in options.items()
    )
    return (
        f'<symbol type="fill" name="{number}" alpha="1" clip_to_extent="1" force_rhr="0">'
        f'<layer class="SimpleFill" enabled="1" locked="0" pass="0"><Option type="Map">{listed}'
        "</Option></layer></symbol>"
    )


def _labels(expression: str) -> str:
    return (
        '<labeling type="simple"><settings calloutType="simple">'
        f'<text-style fieldName={quoteattr(expression)} isExpression="1" fontSize="8"'
        ' fontSizeUnit="Point" textColor="30,30,30,255"><text-buffer bufferDraw="1"'
        ' bufferSize="0.7" bufferSizeUnits="MM" bufferColor="255,255,255,255"/></text-style>'
        '<placement placement="1" centroidInside="1" centroidWhole="1"/>'
        f'<rendering drawLabels="1" scaleVisibility="1" scaleMin="1" scaleMax="{_LABEL_SCALE}"/>'
        "</settings></labeling>"
    )
