"""The values of cells, and how they are written as text."""

import re
from datetime import date, datetime, time
from typing import TypeAlias

from hasat.errors import UsageError
from hasat.messages import template
from hasat.text import csv_text

Cell: TypeAlias = "str | int | float | bool | date | datetime | time | None"
Row: TypeAlias = "list[Cell]"

# A signed number begins like a formula and calculates nothing.
_NUMBER = re.compile(r"[+-]?[0-9][0-9., ]*")


class TableError(UsageError):
    """The file cannot be read as a table, or a table cannot be written in the format."""

    code = "unreadable-table"
    title = template("Table cannot be read")


def is_empty(cell: Cell) -> bool:
    """Return whether a cell shows nothing."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def cell_text(cell: Cell) -> str:
    """Return a cell as a Turkish spreadsheet writes it into a text file."""
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case float():
            return repr(cell).replace(".", ",")
        case datetime():
            return f"{cell:%d.%m.%Y %H:%M:%S}"
        case date():
            return f"{cell:%d.%m.%Y}"
        case time():
            return f"{cell:%H:%M:%S}"
        case _:
            return str(cell)


def harmless_text(cell: Cell) -> str:
    """Return a cell as text that a spreadsheet shows and does not calculate."""
    text = cell_text(cell)
    if not isinstance(cell, str) or _NUMBER.fullmatch(text):
        return text
    return csv_text(text)
