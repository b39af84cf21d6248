"""The properties of parcels as typed columns of a file."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hasat.sources.tkgm.features import StoredParcel

ARROW = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: pa.timestamp("us", tz="UTC"),
}
_GDAL_NAMES = ("fid", "ogc_fid", "geom", "geometry")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXACT_IN_FLOAT = 2**53
_KEY_COLUMNS = ("mahalleId", "adaNo", "parselNo")
FETCHED_AT = "fetchedAt"


@dataclass(frozen=True)
class Column:
    """One property of all parcels; numeric only if all values are."""

    name: str
    values: list[Any]

    @cached_property
    def kind(self) -> type:
        types = {type(value) for value in self.values if value is not None}
        if types == {datetime}:
            return datetime
        if types == {int}:
            # Integers too large for every format are written as text.
            fits = all(one is None or abs(one) < 2**63 for one in self.values)
            return int if fits else str
        if any(type(one) is int and abs(one) >= _EXACT_IN_FLOAT for one in self.values):
            return str
        return float if types and types <= {int, float} else str

    @cached_property
    def cells(self) -> list[Any]:
        return [None if value is None else self._cell(value) for value in self.values]

    @property
    def missing(self) -> np.ndarray[Any, Any]:
        return np.array([value is None for value in self.values], bool)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The values for GDAL, with zeros where `missing` is set."""
        if self.kind is str:
            return np.array(self.cells, object)
        if self.kind is datetime:
            utc = [one and one.astimezone(UTC).replace(tzinfo=None) for one in self.values]
            return np.array(utc, "datetime64[ms]")
        filled = [0 if value is None else value for value in self.values]
        return np.array(filled, np.int64 if self.kind is int else np.float64)

    def as_text(self) -> "Column":
        """Return a column of texts, for formats without times."""
        texts = [
            value.isoformat() if isinstance(value, datetime) else value for value in self.cells
        ]
        return Column(self.name, texts)

    def _cell(self, value: Any) -> Any:
        if self.kind is datetime:
            return value.astimezone(UTC)
        if self.kind is not str:
            return self.kind(value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def columns_of(parcels: Sequence[StoredParcel]) -> list[Column]:
    """Return every property that any parcel has, the key first."""
    rows = [{**one.properties, FETCHED_AT: one.fetched_at} for one in parcels]
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    names = dict.fromkeys(name for name in _KEY_COLUMNS if name in names or not rows) | names
    return [Column(name, [row.get(name) for row in rows]) for name in names]


def field_names(columns: Sequence[Column]) -> list[str]:
    """Return names that are distinct for GDAL, which ignores case and reserves some."""
    taken, names = set(_GDAL_NAMES), []
    for column in columns:
        name = plain = _CONTROL.sub(" ", column.name)
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        names.append(name)
    return names
