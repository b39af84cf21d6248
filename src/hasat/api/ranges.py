"""Parts of a file, and whether the caller has it already (RFC 9110, sections 13 and 14)."""

import re
from collections.abc import Mapping

from hasat.errors import UsageError
from hasat.messages import template

_ONE_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)
_TAG = re.compile(r'(?:W/)?"[^"]*"')


class RangeError(UsageError):
    """The part that was asked for lies beyond the file."""

    status = 416
    code = "range-not-satisfiable"
    title = template("The file is shorter")

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The file has {size:,} bytes; the range begins beyond them.",
            remedy="Ask for the whole file, or for a range within it.",
        )


def parse_range(headers: Mapping[str, str], etag: str, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last of the part that is wanted; None for the whole.

    A range that is none, several ranges, and one that depends on another file than this mean the
    whole file, as the standard allows.
    """
    found = _ONE_RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or headers.get("if-range", etag).strip() != etag:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), int(last) + 1 if last else size
        if last and stop <= start:
            return None
    if start >= size:
        raise RangeError(size)
    return start, min(stop, size)


def matches_etag(headers: Mapping[str, str], etag: str) -> bool:
    """Whether the caller says that it has this already."""
    wanted = headers.get("if-none-match", "")
    if wanted.strip() == "*":
        return True
    return etag.removeprefix("W/") in {tag.removeprefix("W/") for tag in _TAG.findall(wanted)}
