"""Columns of datasets: typed projections of a record's body, declared by its source.

The projection is an SQL expression over the functions of the migration `typed_values`. A value that
cannot be of the column's type is null, so no body can stop a run. The expression serves lists,
indexes, archives and exports alike; the table itself has no such column unless the source made one.
"""

import binascii
import re
from dataclasses import dataclass
from typing import Literal

from psycopg import sql

from hasat.errors import SettingsError
from hasat.messages import msg

Type = Literal["text", "integer", "number", "boolean", "date", "timestamp"]

POSTGRES_TYPE: dict[Type, str] = {
    "text": "text",
    "integer": "bigint",
    "number": "double precision",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp with time zone",
}
# An entry of a btree index has at most 2,704 bytes.
_SORTED_LETTERS = 500
_NAME = re.compile(r"[a-z][a-zA-Z0-9_]{0,40}")


@dataclass(frozen=True)
class Column:
    """A typed projection of a record.

    `path` leads to the value in the body, as `league.season` or as a tuple of its parts; by default
    it is the name. `key_part` takes a part of the key instead: (separator, place from 1).
    """

    name: str
    type: Type = "text"
    path: str | tuple[str, ...] | None = None
    indexed: bool = False
    """Whether the platform makes an index, for datasets with many records."""
    summary: str = ""
    key_part: tuple[str, int] | None = None
    stored: str | None = None
    """The name of a column that a migration of the source made in the table; its indexes serve."""
    zone: str = "UTC"
    """The zone of times that are published without one."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(msg("{name!r} cannot be the name of a column.", name=self.name))

    def project(self, row: str | None) -> sql.Composable:
        """Return the value for a row (the alias of a table) with key and body."""
        prefix = sql.SQL("") if row is None else sql.Identifier(row) + sql.SQL(".")
        if self.key_part is not None:
            separator, place = self.key_part
            value: sql.Composable = sql.SQL("feed.key_part({}key, {}, {})").format(
                prefix, sql.Literal(separator), sql.Literal(place)
            )
        else:
            steps = sql.SQL(", ").join(map(sql.Literal, self.steps))
            value = sql.SQL("{}body #> ARRAY[{}]::text[]").format(prefix, steps)
        if self.type == "timestamp":
            return sql.SQL("feed.as_timestamp({}, {})").format(value, sql.Literal(self.zone))
        return sql.SQL("{}({})").format(sql.Identifier("feed", f"as_{self.type}"), value)

    def read(self, row: str) -> sql.Composable:
        """Return the value for a row of the dataset's own table."""
        return sql.Identifier(row, self.stored) if self.stored else self.project(row)

    def sorted(self, row: str | None) -> sql.Composable:
        """Return what lists sort by: the value, of a long text only its beginning."""
        value = self.project(row) if row is None else self.read(row)
        if self.type != "text" or self.stored:
            return value
        return sql.SQL('(left({}, {}) COLLATE "C")').format(value, sql.Literal(_SORTED_LETTERS))

    @property
    def steps(self) -> tuple[str, ...]:
        if self.path is None:
            return (self.name,)
        return tuple(self.path.split(".")) if isinstance(self.path, str) else self.path

    def index_name(self, dataset: str) -> str:
        """Return the name of the column's index, which is another one for another expression."""
        check = binascii.crc32(self.sorted(None).as_string(None).encode())
        return f"{dataset[:40]}_{self.name[:12]}_{check:08x}"


KEY = Column("key", "text", stored="key")
FIRST_SEEN_AT = Column("firstSeenAt", "timestamp", stored="first_seen_at")
CHANGED_AT = Column("changedAt", "timestamp", stored="changed_at")
BUILT_IN = (KEY, FIRST_SEEN_AT, CHANGED_AT)
"""The columns that every dataset has."""

RESERVED = frozenset({"after", "asOf", "body", "format", "limit", "sort", "total"}) | {
    column.name for column in BUILT_IN
}
"""Names that mean something else in a request or a file."""
