"""The job `tkgm_buildings`: fetch the blocks and units of the parcels of an area."""

from collections.abc import Sequence
from typing import Any

from hasat.errors import BrokenAnswerError, OutOfQuotaError, UsageError
from hasat.feed.raw import delete_expired_bodies
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.sources.tkgm.buildings.fetch import fetch_buildings, publish_buildings, set_aside
from hasat.sources.tkgm.geometry import check_in_turkey, check_size, parse_area
from hasat.sources.tkgm.queries import load_parcels
from hasat.sources.tkgm.registry.client import open_direct
from hasat.sources.tkgm.registry.lookup import check_number
from hasat.sources.tkgm.registry.wire import ParcelKey
from hasat.sources.tkgm.settings import TkgmSettings
from hasat.sources.tkgm.source import BUILDINGS
from hasat.text import fold

_MAX_UNREADABLE = 20


def parse_key(text: str) -> ParcelKey:
    """Return a key of the form mahalleId/adaNo/parselNo."""
    parts = text.strip().split("/")
    if len(parts) != 3:
        raise UsageError(
            msg("{text!r} is not the key of a parcel.", text=text[:80]),
            remedy=msg("Write mahalleId/adaNo/parselNo, such as 1162/2705/15."),
        )
    number = check_number(*parts)
    return number.mahalle_id, number.ada, number.parsel


async def fetch_area(context: RunContext) -> Outcome:
    """Fetch the buildings of `parcels` (keys), or of the condominiums in an `area`.

    In an area, those received within tkgm.parcel_age are left out, so that a run continues where
    the day's quota ended.
    """
    keys = await _wanted(context)
    if not keys:
        return Outcome(
            "nothing",
            message=msg("No stored parcel there has building units that are not up to date."),
        )
    days = context.settings.section(TkgmSettings).raw_retention_days
    async with context.store.connection() as conn:
        await delete_expired_bodies(conn, "tkgm", BUILDINGS.name, days)
    done = changed = unreadable = counted = 0
    kind, message = "done", None
    async with open_direct(context.store, context.settings) as direct:
        for key in keys:
            try:
                record = await fetch_buildings(context.store, direct, key, run=context.run_id)
            except OutOfQuotaError as error:
                kind, message = "out_of_quota", error.message
                break
            except BrokenAnswerError as error:
                unreadable += 1
                await set_aside(context.store, key, error, context.run_id)
                if unreadable > _MAX_UNREADABLE and unreadable > done:
                    raise
                continue
            finally:
                context.count_requests(direct.sent - counted)
                counted = direct.sent
            version = await publish_buildings(context.store, {key: record}, run=context.run_id)
            counts = version.counts["buildings"]
            changed += counts.added + counts.modified + counts.removed
            done += 1
            await context.progress(done, len(keys), f"{done:,}")
    return Outcome(
        kind,  # type: ignore[arg-type]
        rows_changed=changed,
        detail={"parcels": len(keys), "done": done, "unreadable": unreadable},
        message=message,
    )


async def _wanted(context: RunContext) -> Sequence[ParcelKey]:
    if listed := context.params.get("parcels"):
        return [parse_key(one) for one in str(listed).replace(",", " ").split()]
    if not context.params.get("area"):
        raise UsageError(
            msg("The parameters area and parcels are missing."),
            remedy=msg("Give one of them: area=west,south,east,north or parcels=1162/2705/15."),
        )
    area = parse_area(context.params["area"])
    check_in_turkey(area)
    check_size(area, context.settings.section(TkgmSettings).max_area_km2)
    found = await load_parcels(context.store, area)
    keys = [
        str(one.feature["id"])
        for one in found
        if one.feature is not None and _has_units(one.feature["properties"])
    ]
    return [parse_key(key) for key in await _outdated(context, keys)]


def _has_units(properties: Any) -> bool:
    """Return whether a parcel is divided into units: Kat Mülkiyeti or Kat İrtifakı."""
    return fold(str(properties.get("zeminKmdurum") or "")).startswith("kat ")


async def _outdated(context: RunContext, keys: Sequence[str]) -> Sequence[str]:
    """Return the parcels whose buildings were not received lately, the oldest first."""
    age = context.settings.section(TkgmSettings).parcel_age
    async with context.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT w.key FROM unnest(%s::text[]) AS w (key)"
            " LEFT JOIN tkgm.buildings_told AS t USING (key)"
            " WHERE coalesce(t.told_at < clock_timestamp() - %s::interval, true)"
            " ORDER BY t.told_at NULLS FIRST, w.key",
            (list(keys), age),
        )
        return [key for (key,) in await cursor.fetchall()]
