"""Parcels into the mirror: those that were told, without those that are gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.feed.dataset import Scope
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.tkgm.datasets import PARCELS
from hasat.sources.tkgm.features import feature_of
from hasat.sources.tkgm.wire import Registered
from hasat.store import Store

RETENTION_DAYS = 365


async def publish(
    store: Store,
    parcels: Mapping[str, Registered],
    *,
    run: int | None,
    gone: Sequence[str] = (),
) -> Version:
    """Bring the mirror to what was told: these parcels are so, those are no more."""
    async with Reconcile.begin(store, [PARCELS]) as work:
        known = await _known(work.connection, list(parcels))
        await work.stage(
            PARCELS,
            [
                Record(key, canonical(feature_of(parcel, known.get(key))))
                for key, parcel in parcels.items()
            ],
        )
        there = sql.SQL("m.key = ANY (%(gone)s)")
        await work.diff(PARCELS, Scope({"parcels": True}, there, {"gone": list(gone)}))
        await work.connection.execute(
            "INSERT INTO tkgm.parcel_told (key, told_at)"
            " SELECT key, clock_timestamp() FROM unnest(%s::text[]) AS key"
            " ON CONFLICT (key) DO UPDATE SET told_at = EXCLUDED.told_at",
            [list(parcels)],
        )
        return await work.write(run=run, retention_days=RETENTION_DAYS)


async def _known(conn: AsyncConnection[Any], keys: list[str]) -> dict[str, Any]:
    cursor = await conn.execute("SELECT key, body FROM core.parcels WHERE key = ANY (%s)", [keys])
    return dict(await cursor.fetchall())
