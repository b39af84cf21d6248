"""Areas as the registry writes them: `1,295.00` by point, `1.295,00` by number, `52,52`, `500`."""

import math
import re

_FORM = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")


def read_area(text: str, outline_area: float | None = None) -> float | None:
    """The square metres in a text, or None; the outline's own area settles what can be read twice.

    "1.234" is one square metre and a bit, or over a thousand. Without an outline a single
    separator is taken for the decimal one.
    """
    readings = [area for area in _readings(re.sub(r"\s", "", text)) if math.isfinite(area)]
    if not readings:
        return None
    if outline_area is None or outline_area <= 0:
        return readings[0]
    return min(readings, key=lambda area: abs(math.log(max(area, 0.01) / outline_area)))


def _readings(text: str) -> list[float]:
    """Every way to read it, the likeliest first."""
    if not _FORM.fullmatch(text):
        return []
    separators = re.sub("[0-9]", "", text)
    if not separators:
        return [float(text)]
    readings = []
    decimal = separators[-1]
    if separators.count(decimal) == 1:
        whole, _, decimals = text.rpartition(decimal)
        readings.append(float(f"{re.sub('[.,]', '', whole)}.{decimals}"))
    if len(set(separators)) == 1 and _GROUPED.fullmatch(text):
        readings.append(float(text.replace(decimal, "")))
    return readings
