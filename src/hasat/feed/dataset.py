"""Datasets: a name, a source and the table that mirrors it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import SettingsError
from hasat.feed.columns import RESERVED, Column
from hasat.feed.guard import Limits
from hasat.messages import msg

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


def default_change_fields(key: str, body: Any) -> dict[str, Any]:
    """Return the default fields of a change."""
    return {"key": key, "body": body}


@dataclass(frozen=True)
class XmlForm:
    """The XML form of a dataset's archives: a header with the manifest, records, an end."""

    opening: Callable[[Mapping[str, str]], str]
    record: Callable[[Any], str]
    end: str


@dataclass(frozen=True)
class Dataset:
    """A keyed collection of records mirrored from a source.

    `change_fields` returns the fields that identify and show the record in a change (the body is
    None after a removal); the feed adds sequence number, kind and time. `noun` names the records in
    file names of archives. `columns` are the typed projections that lists filter and sort by, and
    that exports and Parquet archives have; `parquet_schema` returns the top-level fields of a body
    as a pyarrow schema and replaces them in archives where a body has nested fields of one shape.
    """

    name: str
    source: str
    summary: str
    change_fields: Callable[[str, Any], dict[str, Any]] = field(
        default=default_change_fields, hash=False
    )
    flat: bool = False
    """Whether an added or modified record is shown by the fields of its body alone."""
    noun: str = "records"
    xml: XmlForm | None = None
    columns: tuple[Column, ...] = ()
    listed: bool = True
    """Whether lists show its records; False where a search of the source decides what to show."""
    parquet_schema: Callable[[], Any] | None = field(default=None, hash=False)
    title: Callable[[Any], str | None] | None = field(default=None, hash=False)
    """Returns the name of a record from its body; pages show it next to the key."""
    retention_days: int = 30
    """How long changes are stored, where the source does not pass it with each run."""
    guard: Limits = field(default_factory=Limits)
    """How much of the dataset one run may change without approval."""
    lists: Callable[[AsyncConnection[Any]], Awaitable[Mapping[str, bytes]]] | None = field(
        default=None, hash=False
    )
    """Returns the SHA-256 of the upstream's lists that the mirror equals, by name; None where they
    are the stored raw responses of the dataset."""
    forget_input: Callable[[AsyncConnection[Any]], Awaitable[None]] | None = field(
        default=None, hash=False
    )
    """Forgets what the source stores of its last input, after an undo: the mirror no longer equals
    it, and the next run must compare everything."""
    check_key: Callable[[str], None] | None = field(default=None, hash=False)
    """Raises UsageError for a text that cannot be a key of the dataset."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(msg("{name!r} cannot be the name of a dataset.", name=self.name))
        names = [column.name for column in self.columns]
        if wrong := sorted({name for name in names if names.count(name) > 1 or name in RESERVED}):
            raise SettingsError(
                msg(
                    "The columns {names} of {dataset} are declared twice, or have a reserved name.",
                    names=", ".join(wrong),
                    dataset=self.name,
                )
            )

    def check_keys(self, keys: Iterable[str]) -> None:
        """Reject keys that no record can have: a watch list with one would never match."""
        if self.check_key is not None:
            for key in keys:
                self.check_key(key)

    def title_of(self, body: Any) -> str | None:
        """Return the name of a record; None if its body has none, whatever the body is."""
        if self.title is None or body is None:
            return None
        try:
            return self.title(body) or None
        except (AttributeError, LookupError, TypeError):
            return None

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier("core", self.name)


@dataclass(frozen=True)
class Scope:
    """The part of a dataset that a run covered; absence means removal only inside it.

    `where` is a condition on the dataset's table (alias m) with the parameters of `values`; the
    whole dataset if absent. `description` is stored with the version.
    """

    description: dict[str, Any]
    where: sql.Composable | None = None
    values: dict[str, Any] = field(default_factory=dict)


WHOLE = Scope({"whole": True})
