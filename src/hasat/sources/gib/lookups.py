"""Lookup of taxpayers by tax number (VKN) or identity number (TCKN), as in the original service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import NotFoundError
from hasat.feed.changes import head_of, record_as_of
from hasat.feed.dataset import Dataset
from hasat.messages import msg, template
from hasat.sources.gib.identifiers import has_valid_checksum, kind_of
from hasat.sources.gib.lists.records import parse_time


class NotATaxpayerError(NotFoundError):
    """The identifier is well-formed, but the dataset has no such taxpayer."""

    code = "not-a-taxpayer"
    title = template("Not a taxpayer")


@dataclass(frozen=True)
class Lookup:
    """Published bodies by identifier, as of the newest commit or of a given time."""

    bodies: Mapping[str, Any]
    committed_at: datetime


async def look_up(
    conn: AsyncConnection[Any], dataset: Dataset, identifiers: Sequence[str]
) -> Lookup:
    """Return the current state of those taxpayers who are in the dataset."""
    # The head first: it raises for a dataset that is loaded for the first time and locked.
    head = await head_of(conn, dataset.name)
    assert head.committed_at is not None
    cursor = await conn.execute(
        sql.SQL("SELECT key, body FROM {} WHERE key = ANY (%s)").format(dataset.table),
        [list(identifiers)],
    )
    return Lookup(dict(await cursor.fetchall()), head.committed_at)


async def look_up_as_of(
    conn: AsyncConnection[Any], dataset: Dataset, identifier: str, at: datetime
) -> Lookup:
    """Return the state of a taxpayer at a given time, if it was in the dataset."""
    await head_of(conn, dataset.name)
    found = await record_as_of(conn, dataset, identifier, at)
    return Lookup({} if found.body is None else {identifier: found.body}, found.committed_at)


def not_a_taxpayer(where: str, identifier: str, *, then: bool = False) -> NotATaxpayerError:
    """Return the error for now, or for the time that was asked about."""
    text = (
        template("{identifier} was not an active taxpayer of {where} then.")
        if then
        else template("{identifier} is not an active taxpayer of {where}.")
    )
    return NotATaxpayerError(msg(text, identifier=identifier, where=where))


def taxpayer_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a taxpayer in the original's form, in which `name` is the alias."""
    aliases = [
        {"name": one["alias"], "type": one["type"], "creationTime": one["creationTime"]}
        for one in body["aliases"]
    ]
    identifier = body["identifier"]
    return {
        **{name: body[name] for name in ("identifier", "title", "accountType", "type")},
        "firstCreationTime": body["firstCreationTime"],
        "aliases": aliases,
        "identifierKind": kind_of(identifier),
        "identifierValid": has_valid_checksum(identifier),
    }


def was_registered_by(body: Mapping[str, Any], by: datetime) -> bool:
    """Return whether the taxpayer was registered by that time."""
    registered = parse_time(body["firstCreationTime"])
    return registered is not None and registered <= by.replace(tzinfo=None)
