"""Values of records: the form in which templates show them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hasat.pages.differences import brief, is_geometry

Shape = Literal[
    "empty", "boolean", "text", "link", "plain", "brief", "fields", "pairs", "table", "list"
]

_LONG_LIST = 500
_MANY_FIELDS = 6
_TIME = re.compile(
    r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?:(:\d\d)(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?(?![\d:])"
)


def shape_of(value: Any) -> Shape:
    """Return how to show a value: nested fields, a table of elements, a list or a text."""
    if value in (None, "", [], {}):
        return "empty"
    match value:
        case bool():
            return "boolean"
        case str():
            return "link" if value.startswith(("https://", "http://")) else "text"
        case dict():
            if is_geometry(value):
                return "brief"
            nested = any(isinstance(one, dict | list) for one in value.values())
            return "fields" if nested or len(value) > _MANY_FIELDS else "pairs"
        case list() if all(isinstance(one, dict) and not is_geometry(one) for one in value):
            return "table"
        case list():
            short = len(value) <= _LONG_LIST and not any(
                isinstance(one, dict | list) for one in value
            )
            return "list" if short else "brief"
        case _:
            return "plain"


def keys_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the fields of some rows, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def tidy_times(text: str) -> str:
    """Write the times in a text with a space, without seconds of zero."""
    return _TIME.sub(lambda found: f"{found[1]} {found[2]}{_seconds(found)}{found[5] or ''}", text)


def _seconds(found: re.Match[str]) -> str:
    return (
        ""
        if (found[3] or ":00") == ":00" and not (found[4] or "").strip(".0")
        else (f"{found[3]}{found[4] or ''}")
    )


FILTERS = {"shape": shape_of, "keys_of": keys_of, "brief": brief, "tidy_times": tidy_times}
"""The filters of templates."""
