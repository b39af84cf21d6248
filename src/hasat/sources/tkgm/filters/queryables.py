"""The properties by which parcels can be filtered, and where PostgreSQL has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

Kind = Literal["string", "number", "integer", "timestamp"]


@dataclass(frozen=True)
class Queryable:
    """A property with its type and the expression of its value."""

    name: str
    kind: Kind
    title: str
    value: sql.SQL

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        if self.kind == "timestamp":
            return {"title": self.title, "type": "string", "format": "date-time"}
        return {"title": self.title, "type": self.kind}


def _text(name: str, title: str) -> Queryable:
    return Queryable(name, "string", title, sql.SQL(f"(p.body #>> '{{properties,{name}}}')"))


def _number(name: str, kind: Kind, title: str) -> Queryable:
    # What the registry did not send as a number has no value.
    path = f"p.body #> '{{properties,{name}}}'"
    value = sql.SQL(f"CASE jsonb_typeof({path}) WHEN 'number' THEN ({path})::float8 END")
    return Queryable(name, kind, title, value)


_ALL = (
    Queryable("mahalleId", "integer", "Neighbourhood, by its id", sql.SQL("p.mahalle_id")),
    Queryable("adaNo", "string", "Block", sql.SQL("p.ada_no")),
    Queryable("parselNo", "string", "Parcel", sql.SQL("p.parsel_no")),
    _number("ilId", "integer", "Province, by its id"),
    _text("ilAd", "Province"),
    _number("ilceId", "integer", "District, by its id"),
    _text("ilceAd", "District"),
    _text("mahalleAd", "Neighbourhood"),
    _text("mevkii", "Locality"),
    _text("pafta", "Sheet"),
    _text("nitelik", "Land use"),
    _text("durum", "1 for an active parcel, 0 for a passive one"),
    _text("zeminKmdurum", "Kind of ownership"),
    _number("alan", "number", "Area in square metres"),
    Queryable(
        "fetchedAt",
        "timestamp",
        "Time of the registry's last response",
        sql.SQL("coalesce(t.told_at, p.changed_at)"),
    ),
)
QUERYABLES: Mapping[str, Queryable] = {one.name: one for one in _ALL}
