"""Taxpayers for tests, straight into the mirror."""

from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from hasat.feed.encoding import Chunk, canonical, pack
from hasat.feed.reconcile import Reconcile
from hasat.sources.gib.datasets import DATASETS, EDESPATCH, EINVOICE
from hasat.store import MigrationSet, Store

MIGRATIONS = [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]


def person(identifier: str, title: str | None, *aliases: str) -> dict[str, Any]:
    """A published body."""
    return {
        "identifier": identifier,
        "title": title,
        "accountType": "GIBPORTAL",
        "type": "OZEL",
        "firstCreationTime": "2019-05-01T10:00:00",
        "aliases": [
            {"alias": alias, "type": "PK", "creationTime": "2019-05-01T10:00:00"}
            for alias in aliases
        ],
    }


def people(*bodies: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {body["identifier"]: body for body in bodies}


async def load(store: Store, state: dict[str, dict[str, Any]]) -> None:
    """The first sync, as it fills the mirror: everything at once, with triggers off."""

    async def chunks(of: dict[str, dict[str, Any]]) -> AsyncIterator[Chunk]:
        yield pack((key, canonical(body)) for key, body in of.items())

    async with Reconcile.begin(store, DATASETS) as work:
        await work.load(EINVOICE, chunks(state))
        await work.load(EDESPATCH, chunks({}))
        await work.write(run=None, retention_days=30)
