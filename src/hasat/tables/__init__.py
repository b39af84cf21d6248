"""Tables in files that people keep: CSV, TSV and XLSX, read and written in bounded memory."""

from hasat.tables.cells import Cell, Row, TableError, cell_text, is_empty
from hasat.tables.reader import FORMATS, FileFormat, OnProgress, Table, format_of_name, read_table
from hasat.tables.writer import MEDIA_TYPES, replacing_file, write_table

__all__ = [
    "FORMATS",
    "MEDIA_TYPES",
    "Cell",
    "FileFormat",
    "OnProgress",
    "Row",
    "Table",
    "TableError",
    "cell_text",
    "format_of_name",
    "is_empty",
    "read_table",
    "replacing_file",
    "write_table",
]
