"""Taxpayers for tests, straight into the mirror."""

from importlib.resources import files
from typing import Any

from hasat.feed.encoding import canonical, pack
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
    """Load the mirror as the first sync does: everything at once, without triggers."""
    rows = pack((key, canonical(body)) for key, body in state.items())
    async with Reconcile.begin(store, DATASETS) as work:
        async with work.loading(EINVOICE) as write:
            await write(rows)
        async with work.loading(EDESPATCH):
            pass
        await work.write(run=None, retention_days=30)
