"""Rebuild the parcels from the stored responses of the registry and of the official service.

Responses are stored for `tkgm.raw_retention_days` only. A parcel whose responses have expired stays
as it is in the mirror, if its record is undamaged.
"""

import json
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import BrokenAnswerError
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical, record_digest
from hasat.feed.raw import StoredResponse, iter_received
from hasat.feed.rebuild import OnResponses, RebuildSummary
from hasat.feed.reconcile import Reconcile, Record
from hasat.fetch import Response
from hasat.settings import Settings
from hasat.sources.tkgm.features import RETENTION_DAYS, build_feature, format_key
from hasat.sources.tkgm.registry.client import parse_stored
from hasat.sources.tkgm.registry.wire import Parcel
from hasat.sources.tkgm.source import PARCELS
from hasat.sources.tkgm.wfs.features import parse_page
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.strategies.whole_list import nothing_stored, rebuild_from

_PACKAGE = "hasat.sources.tkgm"


async def rebuild(
    store: Store,
    _settings: Settings,
    _dataset: Dataset,
    *,
    run: int | None = None,
    approving: int | None = None,
    on_progress: OnResponses | None = None,
) -> RebuildSummary:
    """Recompute the published parcels; one that only a lookup has returned is not among them."""
    read = unreadable = 0
    async with Reconcile.begin(store, [PARCELS]) as work:
        published = await _published_keys(work.connection)
        bodies = await undamaged_bodies(work.connection, PARCELS)
        async with store.connection() as conn:
            async for stored in iter_received(conn, PARCELS.name):
                parcels, broken = _parse(stored)
                read += 1
                unreadable += broken
                for parcel in parcels:
                    if (key := format_key(parcel.key)) in published:
                        before = json.loads(bodies[key]) if key in bodies else None
                        bodies[key] = canonical(build_feature(parcel, before))
                if on_progress is not None:
                    await on_progress(read)
        if not read:
            raise nothing_stored(PARCELS)
        records = {key: Record(key, body) for key, body in bodies.items()}
        result = await rebuild_from(
            work, PARCELS, records, run=run, approving=approving, retention_days=RETENTION_DAYS
        )
    return RebuildSummary(read, unreadable, result)


async def _published_keys(conn: AsyncConnection[Any]) -> set[str]:
    """Return the keys of the parcels that scans have published and not removed."""
    cursor = await conn.execute(load_query(_PACKAGE, "published_keys"), {"dataset": PARCELS.name})
    return {key async for (key,) in cursor}


async def undamaged_bodies(conn: AsyncConnection[Any], dataset: Dataset) -> dict[str, bytes]:
    """Return the records of the mirror whose digest is right."""
    statement = sql.SQL("SELECT key, body, digest FROM {}").format(dataset.table)
    cursor = await conn.execute(statement)
    found = [(key, canonical(body), digest) async for key, body, digest in cursor]
    return {key: body for key, body, digest in found if record_digest(body) == digest}


def _parse(stored: StoredResponse) -> tuple[Sequence[Parcel], int]:
    """Return the parcels of a response, and how many of its parts cannot be read.

    A request of the registry is a path and its parameters; other requests are of the service.
    """
    response = Response(stored.status, {}, stored.content or b"", 0.0)
    if not stored.request or stored.request[0] in "/ ":
        return parse_stored(stored.request, response)
    try:
        page = parse_page(response.body)
    except BrokenAnswerError:
        return [], 1
    return page.parcels, len(page.unreadable)
