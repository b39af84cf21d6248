"""The typed columns that a mirror's table has beside the record itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import class_row

from hasat.feed.dataset import Dataset
from hasat.store.queries import load_query

# JSON and Arrow have no infinite dates, and JSON no infinite numbers: both are null.
_FINITE = "CASE WHEN isfinite({0}) THEN {1} END"
_MICROSECONDS = _FINITE.format("{0}", "(extract(epoch FROM {0}) * 1000000)::bigint")
_FLOAT = "CASE WHEN {0} NOT IN ('NaN', 'Infinity', '-Infinity') THEN {0} END"
_IN_JSON = {
    "smallint": "{0}",
    "integer": "{0}",
    "bigint": "{0}",
    "boolean": "{0}",
    "real": _FLOAT,
    "double precision": _FLOAT,
    "date": _FINITE.format("{0}", "{0} - date '1970-01-01'"),
    "timestamp with time zone": _MICROSECONDS,
    "timestamp without time zone": _MICROSECONDS,
}
_AS_TEXT = "({0})::text"


@dataclass(frozen=True)
class Column:
    """A typed column; `type` is PostgreSQL's name of its type."""

    name: str
    type: str

    @property
    def in_json(self) -> sql.Composed:
        """The value as a JSON number, boolean or text that Arrow takes for its type."""
        form = _IN_JSON.get(self.type, _AS_TEXT)
        return sql.SQL(form).format(sql.Identifier(self.name))


def typed_columns(conn: Connection[Any], dataset: Dataset) -> Sequence[Column]:
    """The columns of the dataset's table that not every record has."""
    with conn.cursor(row_factory=class_row(Column)) as cursor:
        cursor.execute(
            load_query("hasat.feed.archive", "typed_columns"),
            {"table": dataset.table.as_string(conn)},
        )
        return cursor.fetchall()


def values_of(columns: Sequence[Column]) -> sql.Composed:
    """An expression for the values of these columns in one row, as a JSON array."""
    return sql.SQL("json_build_array({})::text").format(
        sql.SQL(", ").join(column.in_json for column in columns)
    )
