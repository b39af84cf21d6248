"""The answer to "e-Fatura or e-Arşiv?": both datasets in one snapshot, with their versions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from hasat.clock import local_time
from hasat.feed.changes import no_data_error
from hasat.feed.lookups import RecordLookups
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.identifiers import (
    Malformation,
    find_malformation,
    find_padding,
    has_valid_checksum,
    kind_of,
    malformed_identifier,
)
from hasat.sources.gib.lists.records import parse_time
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.gib"
_RECEIVER = "PK"
_NAMES = [dataset.name for dataset in DATASETS]


@dataclass(frozen=True)
class Version:
    """The committed state of a dataset that an answer was read from."""

    dataset: str
    epoch: UUID
    seq: int
    committed_at: datetime


@dataclass(frozen=True)
class Check:
    """The records of some identifiers in both datasets, and the versions they were read from."""

    bodies: Mapping[str, Mapping[str, Any]]
    """By dataset, then by identifier."""
    versions: Mapping[str, Version]

    @property
    def committed_at(self) -> datetime:
        """Return the time of the newest commit."""
        return max(version.committed_at for version in self.versions.values())

    def find_malformation(self, identifier: str) -> Malformation | None:
        """Return why a text cannot be an identifier; None if it can, or if it is registered."""
        if any(identifier in found for found in self.bodies.values()):
            return None
        return find_malformation(identifier) or find_padding(identifier)

    def answer(self, identifier: str) -> dict[str, Any]:
        """Return the answer for one identifier; raise if it is malformed."""
        if (malformation := self.find_malformation(identifier)) is not None:
            raise malformed_identifier(identifier, malformation)
        found = {name: bodies.get(identifier) for name, bodies in self.bodies.items()}
        titles = [body["title"] for body in found.values() if body is not None]
        return {
            "identifier": identifier,
            "valid": has_valid_checksum(identifier),
            "kind": kind_of(identifier),
            "title": next((title for title in titles if title is not None), None),
            **{name: _registration(body) for name, body in found.items()},
            "invoiceKind": "e-Arşiv" if found["einvoice"] is None else "e-Fatura",
            "version": self.version_json(),
        }

    def version_json(self) -> dict[str, Any]:
        """Return the state of both datasets that the answers were read from."""
        return {
            "committedAt": local_time(self.committed_at),
            **{
                name: {"epoch": str(version.epoch), "seq": version.seq}
                for name, version in self.versions.items()
            },
        }


async def check(conn: AsyncConnection[Any], identifiers: Iterable[str]) -> Check:
    """Return what both datasets say about identifiers, from one statement."""
    # The heads first: a dataset that is loaded for the first time is locked.
    heads = await conn.execute(
        "SELECT dataset FROM feed.head WHERE dataset = ANY (%s) AND committed_at IS NOT NULL",
        [_NAMES],
    )
    filled = {name for (name,) in await heads.fetchall()}
    for name in _NAMES:
        if name not in filled:
            raise no_data_error(name)
    rows = await conn.execute(load_query(_PACKAGE, "check"), _wanted(identifiers))
    return _read(await rows.fetchall())


async def check_current(lookups: RecordLookups, identifiers: Iterable[str]) -> Check:
    """Return the same from a prepared statement, in a process that serves many requests."""
    for dataset in DATASETS:
        await lookups.of(dataset).check_filled()
    return _read(await lookups.store.read(load_query(_PACKAGE, "check"), _wanted(identifiers)))


def _wanted(identifiers: Iterable[str]) -> dict[str, Any]:
    return {"datasets": _NAMES, "identifiers": list(set(identifiers))}


def _read(rows: Iterable[tuple[Any, ...]]) -> Check:
    """Return the rows of the query as a check."""
    bodies: dict[str, dict[str, Any]] = {name: {} for name in _NAMES}
    versions: dict[str, Version] = {}
    for name, key, body, epoch, seq, committed_at in rows:
        if key is not None:
            bodies[name][key] = body
        elif committed_at is None:
            raise no_data_error(name)
        else:
            versions[name] = Version(name, epoch, seq, committed_at)
    # PostgreSQL may return the heads in either order, and equal answers are equal bytes.
    return Check(bodies, {name: versions[name] for name in _NAMES})


def receiver_aliases(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the active aliases that receive documents, newest first."""
    receivers = [one for one in body["aliases"] if one["type"] == _RECEIVER]
    return sorted(receivers, key=_creation, reverse=True)


def _creation(alias: Mapping[str, Any]) -> tuple[bool, str, str]:
    """Return a key that sorts an unreadable time before every readable one."""
    created = parse_time(alias["creationTime"])
    return created is not None, "" if created is None else created.isoformat(), alias["alias"]


def _registration(body: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what one dataset says about a taxpayer."""
    aliases = (
        []
        if body is None
        else [
            {name: one[name] for name in ("alias", "type", "creationTime")}
            for one in receiver_aliases(body)
        ]
    )
    return {
        "registered": body is not None,
        "since": None if body is None else body["firstCreationTime"],
        "aliases": aliases,
        "sendTo": aliases[0]["alias"] if aliases else None,
    }
