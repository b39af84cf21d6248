"""What a dataset is: a name, the source it comes from, and the table that mirrors it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from hasat.errors import SettingsError
from hasat.messages import msg

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


def plain_change(key: str, body: Any) -> dict[str, Any]:
    """How a change names its record unless the dataset has a form of its own."""
    return {"key": key, "body": body}


@dataclass(frozen=True)
class XmlForm:
    """How archives of a dataset are written as XML: an opening with facts, records, an end."""

    opening: Callable[[Mapping[str, str]], str]
    record: Callable[[Any], str]
    end: str


@dataclass(frozen=True)
class Dataset:
    """A keyed collection of records mirrored from a source.

    `spell` gives the fields by which a change names and shows its record (the body is None after
    a removal); the feed adds number, kind and time. `noun` says in the names of archives what the
    records are; `columns` gives their fields as a pyarrow schema, for Parquet, where the table
    has no typed columns for them.
    """

    name: str
    source: str
    summary: str
    spell: Callable[[str, Any], dict[str, Any]] = field(default=plain_change, hash=False)
    flat: bool = False
    """A change of a record that is there shows the fields of its body, and `spell` no others."""
    noun: str = "records"
    xml: XmlForm | None = None
    columns: Callable[[], Any] | None = field(default=None, hash=False)
    check_key: Callable[[str], None] | None = field(default=None, hash=False)
    """Raises UsageError for a text that cannot be a key of the dataset."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(msg("{name!r} cannot be the name of a dataset.", name=self.name))

    def check_keys(self, keys: Iterable[str]) -> None:
        """Reject keys that no record can have: a watch list with one would wait in vain."""
        if self.check_key is not None:
            for key in keys:
                self.check_key(key)

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier("core", self.name)


@dataclass(frozen=True)
class Scope:
    """What a run really covered; absence means removal only inside of it.

    `where` is a condition on the dataset's table (alias m) with the parameters of `values`; the
    whole dataset if absent. `told` describes it to people and in the run's record.
    """

    told: dict[str, Any]
    where: sql.Composable | None = None
    values: dict[str, Any] = field(default_factory=dict)


WHOLE = Scope({"whole": True})
