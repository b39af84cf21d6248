"""The responses of the server as frozen values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

TURKISH_TIME = timezone(timedelta(hours=3), "TRT")
"""The server writes times without a zone in Turkish time."""

ChangeType = Literal["added", "modified", "removed"]


def parse_time(text: str | None) -> datetime | None:
    """Return a time of the server with its zone."""
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=TURKISH_TIME)


@dataclass(frozen=True)
class Record:
    """A record of a dataset: its key and its body as published."""

    key: str
    body: Mapping[str, Any]
    changed_at: datetime | None = None
    seq: int | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str = "") -> "Record":
        """Read a record; a route of a source returns the body alone."""
        if isinstance(document.get("body"), Mapping) and "key" in document:
            changed = parse_time(document.get("changedAt"))
            return cls(document["key"], document["body"], changed, document.get("seq"))
        return cls(key or str(document.get("identifier", "")), document)


@dataclass(frozen=True)
class RecordPage:
    """A page of a list; `next` is the cursor of the following one, None at the end."""

    records: tuple[Record, ...]
    next: str | None
    total: int | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "RecordPage":
        records = tuple(map(Record.read, document["items"]))
        return cls(records, document["next"], document.get("total"))


@dataclass(frozen=True)
class Change:
    """A change of one record; `body` is None after a removal."""

    seq: int
    type: ChangeType
    key: str
    body: Mapping[str, Any] | None
    changed_at: datetime
    before: Mapping[str, Any] | None = None
    """The body before the change, if it was asked for."""
    fields: tuple[str, ...] = ()
    """The fields that a modification changed, if `before` was asked for."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Change":
        changed_at = parse_time(document["changedAt"])
        if changed_at is None:
            raise ValueError("changedAt is empty")
        return cls(
            document["seq"],
            document["changeType"],
            document["key"],
            document["body"],
            changed_at,
            document.get("before"),
            tuple(document.get("fields") or ()),
        )


@dataclass(frozen=True)
class ChangePage:
    """Changes after a cursor, in sequence; store `next` together with what you made of them."""

    changes: tuple[Change, ...]
    next: str
    up_to_date: bool
    epoch: str
    head: int

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "ChangePage":
        return cls(
            tuple(map(Change.read, document["changes"])),
            document["next"],
            document["upToDate"],
            document["epoch"],
            document["head"],
        )


@dataclass(frozen=True)
class Digest:
    """The state digest of a dataset, to compare a copy with."""

    digest: str
    count: int
    cursor: str
    epoch: str
    head: int

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Digest":
        return cls(*(document[name] for name in ("digest", "count", "cursor", "epoch", "head")))


@dataclass(frozen=True)
class Alias:
    """A receiver alias of a taxpayer."""

    alias: str
    type: str
    created_at: datetime | None


@dataclass(frozen=True)
class Registration:
    """Whether a taxpayer is active in one list, and where to send to."""

    registered: bool
    since: datetime | None
    aliases: tuple[Alias, ...]
    send_to: str | None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Registration":
        aliases = (
            Alias(one["alias"], one["type"], parse_time(one.get("creationTime")))
            for one in document["aliases"]
        )
        since = parse_time(document["since"])
        return cls(document["registered"], since, tuple(aliases), document["sendTo"])


@dataclass(frozen=True)
class Check:
    """Whether to send a taxpayer an e-Fatura or an e-Arşiv invoice, and where to."""

    identifier: str
    kind: str
    valid: bool
    title: str | None
    invoice_kind: str
    einvoice: Registration
    edespatch: Registration
    version: Mapping[str, Any] = field(default_factory=dict)
    """The state of both lists that the answer was read from."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Check":
        return cls(
            document["identifier"],
            document["kind"],
            document["valid"],
            document["title"],
            document["invoiceKind"],
            Registration.read(document["einvoice"]),
            Registration.read(document["edespatch"]),
            document.get("version", {}),
        )


@dataclass(frozen=True)
class Malformed:
    """An entry that cannot be an identifier; nothing was looked up for it."""

    input: str
    reason: str
    likely: str | None


@dataclass(frozen=True)
class CheckList:
    """The answers for a list of identifiers; decide only when `malformed` is empty."""

    items: tuple[Check, ...]
    malformed: tuple[Malformed, ...]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "CheckList":
        malformed = (
            Malformed(one["input"], one["reason"], one.get("likely"))
            for one in document["malformed"]
        )
        return cls(tuple(map(Check.read, document["items"])), tuple(malformed))


@dataclass(frozen=True)
class ArchiveInfo:
    """An archive that the server has: a complete copy of the dataset at one cursor."""

    file_name: str
    format: str
    size: int
    sha256: str
    cursor: str
    created_at: datetime | None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "ArchiveInfo":
        return cls(
            document["fileName"],
            document["format"],
            document["sizeBytes"],
            document["sha256"],
            document["cursor"],
            parse_time(document["createdAt"]),
        )
