"""Scans in the database: their known state at the start, responses, completion, deletion."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import shapely
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from shapely.geometry import mapping

from hasat.errors import BrokenAnswerError, ConflictError, NotFoundError
from hasat.messages import msg
from hasat.sources.tkgm.features import format_key
from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.client import ParcelResponse
from hasat.sources.tkgm.registry.wire import (
    Parcel,
    Point,
    Query,
    format_query,
    interior_point,
    parse_parcel,
    parse_query,
)
from hasat.sources.tkgm.scan.likelihood import PRIOR_WEIGHTS
from hasat.sources.tkgm.scan.progress import ScanRequest
from hasat.sources.tkgm.scan.rescan import KnownParcel
from hasat.store import Store
from hasat.store.queries import load_query

# Parcels that overlap the area with less than this belong to the other side of its border.
_MIN_SQUARE_DEGREES = 2e-9
_ROWS_AT_ONCE = 2000
_PACKAGE = "hasat.sources.tkgm"


@dataclass(frozen=True)
class KnownState:
    """The parcels, empty queries and weights that are known when a scan starts."""

    parcels: Sequence[KnownParcel] = ()
    empty: Sequence[Query] = ()
    weights: Sequence[float] | None = None

    def __bool__(self) -> bool:
        return bool(self.parcels or self.empty)


@dataclass(frozen=True)
class ScanRecord:
    """The row of a scan that is not finished."""

    store: Store
    id: int
    concurrency: int
    known: KnownState

    @classmethod
    async def open(
        cls, store: Store, request: ScanRequest, *, concurrency: int, age: timedelta
    ) -> "ScanRecord":
        """Return the unfinished scan of a request, or start one with what is known now."""
        async with store.connection() as conn:
            cursor = await conn.execute(
                "INSERT INTO tkgm.scan (wish, area, method, abreast) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (wish) WHERE finished_at IS NULL DO NOTHING RETURNING id",
                (
                    request.fingerprint,
                    Jsonb(mapping(request.area)),
                    Jsonb(request.options),
                    concurrency,
                ),
            )
            started = await cursor.fetchone()
            if started is not None and request.method == "coverage":
                await save_known_state(conn, started[0], request.area, age)
        async with store.connection() as conn:
            cursor = await conn.execute(
                "SELECT id, abreast FROM tkgm.scan WHERE wish = %s AND finished_at IS NULL",
                [request.fingerprint],
            )
            row = await cursor.fetchone()
            assert row is not None
            return cls(store, row[0], row[1], await load_known_state(conn, row[0]))

    async def load_responses(self, batch: Sequence[Query]) -> dict[str, Parcel | None]:
        """Return the stored responses to queries of a batch, by the text of the query."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question, feature FROM tkgm.told WHERE scan = %s AND question = ANY (%s)",
                (self.id, [format_query(one) for one in batch]),
            )
            rows = await cursor.fetchall()
        return {text: None if body is None else parse_parcel(body) for text, body in rows}

    async def save_responses(self, responses: Sequence[ParcelResponse]) -> dict[str, Parcel | None]:
        """Store responses, committed; return their parcels by the text of the query."""
        rows = [
            (
                self.id,
                format_query(one.query),
                None if one.parcel is None else format_key(one.parcel.key),
                None if one.parcel is None else Jsonb(_as_received(one.parcel)),
            )
            for one in responses
        ]
        # Sorted, so that two batches with a query in common cannot deadlock.
        rows.sort(key=lambda row: row[1])
        async with self.store.connection() as conn, conn.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO tkgm.told (scan, question, key, feature) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                rows,
            )
        return {format_query(one.query): one.parcel for one in responses}

    async def delete_responses(self, queries: Sequence[str]) -> None:
        """Delete the responses to queries, given as texts."""
        async with self.store.connection() as conn:
            await conn.execute(
                "DELETE FROM tkgm.told WHERE scan = %s AND question = ANY (%s)",
                (self.id, list(queries)),
            )

    async def load_skipped(self) -> set[str]:
        """Return the texts of the skipped queries."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.unanswered WHERE scan = %s", [self.id]
            )
            return {text for (text,) in await cursor.fetchall()}

    async def skip(self, query: Query) -> None:
        """Continue without a response to a query from now on."""
        async with self.store.connection() as conn:
            await conn.execute(
                "INSERT INTO tkgm.unanswered (scan, question) VALUES (%s, %s)"
                " ON CONFLICT DO NOTHING",
                (self.id, format_query(query)),
            )

    async def delete_skipped(self) -> None:
        """Send the skipped queries again when the scan is resumed."""
        async with self.store.connection() as conn:
            await conn.execute("DELETE FROM tkgm.unanswered WHERE scan = %s", [self.id])

    async def latest_hit(self) -> Query | None:
        """Return the latest query that found a parcel; None before the first."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.told WHERE scan = %s AND key IS NOT NULL"
                " ORDER BY told_at DESC LIMIT 1",
                [self.id],
            )
            row = await cursor.fetchone()
        return None if row is None else parse_query(row[0])

    async def empty_points(self) -> list[Point]:
        """Return the points without a parcel, of this scan and of those before."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.told WHERE scan = %(scan)s AND key IS NULL"
                " UNION SELECT question FROM tkgm.known WHERE scan = %(scan)s AND key IS NULL",
                {"scan": self.id},
            )
            queries = [parse_query(text) for (text,) in await cursor.fetchall()]
        return [one for one in queries if isinstance(one, Point)]

    async def finish(self, result: Mapping[str, Any]) -> None:
        """Store the result, and delete the responses of the previous scan."""
        async with self.store.connection() as conn:
            await conn.execute(
                "UPDATE tkgm.scan SET finished_at = clock_timestamp(), result = %s WHERE id = %s",
                (Jsonb(result), self.id),
            )
            for table in ("told", "known", "unanswered"):
                await conn.execute(
                    f"DELETE FROM tkgm.{table} AS old USING tkgm.scan AS s"  # noqa: S608
                    " WHERE s.id = %s AND old.scan = s.after",
                    [self.id],
                )


async def save_known_state(
    conn: AsyncConnection[Any], scan: int, area: Outline, age: timedelta
) -> None:
    """Store what is known when a scan starts, so that it stays the same until the scan ends.

    Parcels received within `age` count as fresh, unless a scan with the same request finished
    since: a repeated scan is meant to find what is new.
    """
    values = {"scan": scan, "area": Jsonb(mapping(area)), "age": age}
    cursor = await conn.execute(load_query(_PACKAGE, "previous_scan"), values)
    row = await cursor.fetchone()
    assert row is not None
    before, fresh_after = row
    values |= {"before": before, "fresh_after": fresh_after}
    await _save_parcels(conn, scan, area, values)
    if before is not None:
        await conn.execute(load_query(_PACKAGE, "copy_empty_queries"), values)
        await conn.execute("UPDATE tkgm.scan SET after = %s WHERE id = %s", (before, scan))


async def load_known_state(conn: AsyncConnection[Any], scan: int) -> KnownState:
    """Return what was known when a scan started, always in the same order."""
    parcels, empty = [], []
    async with conn.cursor("known") as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        await cursor.execute(
            "SELECT question, feature, fresh FROM tkgm.known WHERE scan = %s"
            " ORDER BY told_at, question, key",
            [scan],
        )
        async for text, feature, fresh in cursor:
            query = parse_query(text)
            if feature is None:
                empty.append(query)
                continue
            try:
                parcel = parse_parcel(feature)
            except BrokenAnswerError:
                # Stored by an earlier release that checked less; it can be found again.
                continue
            if parcel.geometry is not None and isinstance(query, Point):
                # Without the properties, which would fill the memory.
                parcels.append(KnownParcel(parcel.key, parcel.geometry, query, fresh))
    return KnownState(parcels, empty, await _load_weights(conn, scan))


async def _save_parcels(
    conn: AsyncConnection[Any], scan: int, area: Outline, values: dict[str, Any]
) -> None:
    """Store the parcels that overlap the area with more than a sliver, some at a time."""
    box = dict(zip(("west", "south", "east", "north"), area.bounds, strict=True))
    shapely.prepare(area)
    async with conn.cursor("parcels_before") as reading, conn.cursor() as writing:
        await reading.execute(load_query(_PACKAGE, "parcels_before_scan"), {**values, **box})
        while some := await reading.fetchmany(_ROWS_AT_ONCE):
            rows = []
            for key, body, fetched_at, found_by in some:
                query = _check_query(body["geometry"], area, found_by)
                if query is not None:
                    fresh = fetched_at > values["fresh_after"]
                    rows.append((scan, query, key, Jsonb(body), fetched_at, fresh))
            await writing.executemany(
                "INSERT INTO tkgm.known (scan, question, key, feature, told_at, fresh)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                rows,
            )


def _check_query(geometry: Any, area: Outline, found_by: str | None) -> str | None:
    """Return the query that checks a parcel; None if it hardly overlaps the area."""
    outline = shapely.from_geojson(json.dumps(geometry))
    if not area.covers(outline):
        outline = outline.intersection(area)
        if outline.area < _MIN_SQUARE_DEGREES:
            return None
    return found_by or format_query(interior_point(outline))


async def _load_weights(conn: AsyncConnection[Any], scan: int) -> list[float] | None:
    """Return the weights of the previous scan, if they fit the present model."""
    cursor = await conn.execute(
        "SELECT b.result -> 'weights' FROM tkgm.scan AS s JOIN tkgm.scan AS b ON b.id = s.after"
        " WHERE s.id = %s",
        [scan],
    )
    row = await cursor.fetchone()
    if row is None or not isinstance(row[0], list) or len(row[0]) != len(PRIOR_WEIGHTS):
        return None
    return [float(value) for value in row[0]]


def _as_received(parcel: Parcel) -> dict[str, Any]:
    """Return a parcel as a feature that `parse_parcel` reads."""
    geometry = None if parcel.geometry is None else mapping(parcel.geometry)
    return {"type": "Feature", "geometry": geometry, "properties": dict(parcel.properties)}


async def delete_scan(store: Store, scan: int) -> None:
    """Delete a scan and its stored responses; raise ConflictError while it runs."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "scan_to_delete"), {"scan": scan})
        row = await cursor.fetchone()
        if row is None:
            raise NotFoundError(
                msg("There is no scan {scan}.", scan=scan),
                remedy=msg("`hasat tkgm scans` lists them."),
            )
        if row[0]:
            raise ConflictError(
                msg("Scan {scan} is running.", scan=scan),
                remedy=msg("Stop its run first, or wait two minutes after the last response."),
            )
        await conn.execute("DELETE FROM tkgm.scan WHERE id = %s", [scan])
