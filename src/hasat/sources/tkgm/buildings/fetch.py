"""Fetch the blocks and units of parcels from the registry, store what it sent, and publish it."""

from collections.abc import Mapping
from typing import Any

from psycopg import sql

from hasat.errors import BrokenAnswerError
from hasat.feed.dataset import Scope
from hasat.feed.encoding import canonical
from hasat.feed.raw import RawRequest, store_body_now
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.fetch import FetchResult, Outcome
from hasat.sources.tkgm.buildings.records import (
    blocks_path,
    build_record,
    parse_rows,
    units_path,
)
from hasat.sources.tkgm.features import RETENTION_DAYS, format_key
from hasat.sources.tkgm.registry.client import DirectClient
from hasat.sources.tkgm.registry.wire import ParcelKey
from hasat.sources.tkgm.source import BUILDINGS
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine

JOB = "tkgm_buildings"


async def fetch_buildings(
    store: Store, direct: DirectClient, key: ParcelKey, *, run: int | None
) -> dict[str, Any] | None:
    """Return the record of a parcel, None without buildings: a request, and one for each block."""

    async def get(path: str) -> FetchResult:
        fetched = await direct.get(path, JOB)
        if (response := fetched.response) is not None:
            raw = RawRequest("tkgm", BUILDINGS.name, path, path, response.status, response.headers)
            await store_body_now(store, raw, response.body, run=run)
        return fetched

    listed = await get(blocks_path(key))
    if listed.verdict.outcome is Outcome.EMPTY:
        return None
    blocks = parse_rows(listed.body)
    units = []
    for block in blocks:
        found = await get(units_path(key, block))
        empty = found.verdict.outcome is Outcome.EMPTY
        units.append([] if empty else parse_rows(found.body))
    return build_record(key, blocks, units) if blocks else None


async def publish_buildings(
    store: Store, records: Mapping[ParcelKey, Mapping[str, Any] | None], *, run: int | None
) -> Version:
    """Write the records of parcels to the mirror; None removes that of a parcel."""
    keys = [format_key(key) for key in records]
    async with Reconcile.begin(store, [BUILDINGS]) as work:
        await work.stage(
            BUILDINGS,
            [
                Record(format_key(key), canonical(record))
                for key, record in records.items()
                if record is not None
            ],
        )
        scope = Scope({"parcels": keys}, sql.SQL("m.key = ANY (%(keys)s)"), {"keys": keys})
        await work.diff(BUILDINGS, scope)
        await work.connection.execute(
            "INSERT INTO tkgm.buildings_told (key, told_at)"
            " SELECT key, clock_timestamp() FROM unnest(%s::text[]) AS key"
            " ON CONFLICT (key) DO UPDATE SET told_at = EXCLUDED.told_at",
            [keys],
        )
        return await work.write(run=run, retention_days=RETENTION_DAYS)


async def set_aside(
    store: Store, key: ParcelKey, error: BrokenAnswerError, run: int | None
) -> None:
    """Record that the response for a parcel cannot be read; its record stays as it is."""
    aside = QuarantinedRecord(f"buildings {format_key(key)}", error.message, b"")
    async with store.connection() as conn:
        await quarantine(conn, "tkgm", run, [aside])
