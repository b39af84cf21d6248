"""A scan in the database: what it began with, what it was told, and that it is complete."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import shapely
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from shapely import MultiPolygon, Polygon
from shapely.geometry import mapping

from hasat.errors import BrokenAnswerError
from hasat.sources.tkgm.features import key_text
from hasat.sources.tkgm.registry.client import Told, read_question, spelled
from hasat.sources.tkgm.registry.wire import Parcel, Point, Question, Registered, read_feature
from hasat.sources.tkgm.scan.likelihood import START
from hasat.sources.tkgm.scan.rescan import KnownParcel, inside_point
from hasat.sources.tkgm.scan.scan_request import Wish
from hasat.store import Store
from hasat.store.queries import load_query

# Parcels that reach into the area with less than this are left to the other side of the border.
_LEAST_DEGREES = 2e-9
_AT_ONCE = 2000
_PACKAGE = "hasat.sources.tkgm"


@dataclass(frozen=True)
class Known:
    """Parcels, points and numbers without one, and what the scan before had learnt."""

    parcels: Sequence[KnownParcel] = ()
    empty: Sequence[Question] = ()
    weights: Sequence[float] | None = None

    def __bool__(self) -> bool:
        return bool(self.parcels or self.empty)


async def write_known(
    conn: AsyncConnection[Any], scan: int, area: Polygon | MultiPolygon, age: timedelta
) -> None:
    """Fixes what is known for a scan that begins.

    What was told within `age` is taken as it is, unless the very same scan was complete since: who
    wants it again wants to know what is new.
    """
    values = {"scan": scan, "area": Jsonb(mapping(area)), "age": age}
    cursor = await conn.execute(load_query(_PACKAGE, "scan_before"), values)
    row = await cursor.fetchone()
    assert row is not None
    before, fresh_after = row
    values |= {"before": before, "fresh_after": fresh_after}
    await _write_parcels(conn, scan, area, values)
    if before is not None:
        await conn.execute(load_query(_PACKAGE, "empty_before"), values)
        await conn.execute("UPDATE tkgm.scan SET after = %s WHERE id = %s", (before, scan))


async def read_known(conn: AsyncConnection[Any], scan: int) -> Known:
    """What was fixed when the scan began, always in the same order."""
    parcels, empty = [], []
    async with conn.cursor("known") as cursor:
        cursor.itersize = _AT_ONCE
        await cursor.execute(
            "SELECT question, feature, fresh FROM tkgm.known WHERE scan = %s"
            " ORDER BY told_at, question, key",
            [scan],
        )
        async for text, feature, fresh in cursor:
            question = read_question(text)
            if feature is None:
                empty.append(question)
                continue
            try:
                told = read_feature(feature)
            except BrokenAnswerError:
                # Stored by an earlier release that checked less: found again, but never gone.
                continue
            if told.geometry is not None and isinstance(question, Point):
                # Only the ground matters here; the rest would fill the memory.
                parcels.append(KnownParcel(Parcel(told.key, told.geometry), question, fresh))
    return Known(parcels, empty, await _weights(conn, scan))


async def _write_parcels(
    conn: AsyncConnection[Any], scan: int, area: Polygon | MultiPolygon, values: dict[str, Any]
) -> None:
    """The parcels that lie in the area with more than a sliver, some at a time."""
    box = dict(zip(("west", "south", "east", "north"), area.bounds, strict=True))
    shapely.prepare(area)
    async with conn.cursor("known_before") as reading, conn.cursor() as writing:
        await reading.execute(load_query(_PACKAGE, "known_before"), {**values, **box})
        while some := await reading.fetchmany(_AT_ONCE):
            rows = []
            for key, body, told_at, question in some:
                where = _question(body["geometry"], area, question)
                if where is not None:
                    fresh = told_at > values["fresh_after"]
                    rows.append((scan, where, key, Jsonb(body), told_at, fresh))
            await writing.executemany(
                "INSERT INTO tkgm.known (scan, question, key, feature, told_at, fresh)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                rows,
            )


def _question(geometry: Any, area: Polygon | MultiPolygon, told: str | None) -> str | None:
    """Where to ask whether a parcel is still there; None if it hardly reaches into the area."""
    ground = shapely.from_geojson(json.dumps(geometry))
    if not area.covers(ground):
        ground = ground.intersection(area)
        if ground.area < _LEAST_DEGREES:
            return None
    return told or spelled(inside_point(ground))


async def _weights(conn: AsyncConnection[Any], scan: int) -> list[float] | None:
    """What the scan before had learnt, if this version of the program still means the same."""
    cursor = await conn.execute(
        "SELECT b.result -> 'weights' FROM tkgm.scan AS s JOIN tkgm.scan AS b ON b.id = s.after"
        " WHERE s.id = %s",
        [scan],
    )
    row = await cursor.fetchone()
    if row is None or not isinstance(row[0], list) or len(row[0]) != len(START):
        return None
    return [float(value) for value in row[0]]


@dataclass(frozen=True)
class ScanRecord:
    """The row of a scan that is not finished."""

    store: Store
    id: int
    abreast: int
    known: Known

    @classmethod
    async def take_up(
        cls, store: Store, wish: Wish, *, abreast: int, age: timedelta
    ) -> "ScanRecord":
        """The scan of this wish that is not finished; else a new one, with what is known now."""
        async with store.connection() as conn:
            cursor = await conn.execute(
                "INSERT INTO tkgm.scan (wish, area, method, abreast) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (wish) WHERE finished_at IS NULL DO NOTHING RETURNING id",
                (wish.mark, Jsonb(mapping(wish.area)), Jsonb(wish.how), abreast),
            )
            begun = await cursor.fetchone()
            if begun is not None and wish.method == "coverage":
                await write_known(conn, begun[0], wish.area, age)
        async with store.connection() as conn:
            cursor = await conn.execute(
                "SELECT id, abreast FROM tkgm.scan WHERE wish = %s AND finished_at IS NULL",
                [wish.mark],
            )
            row = await cursor.fetchone()
            assert row is not None
            return cls(store, row[0], row[1], await read_known(conn, row[0]))

    async def kept(self, batch: Sequence[Question]) -> dict[str, Registered | None]:
        """The answers to questions of a batch that were paid for earlier."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question, feature FROM tkgm.told WHERE scan = %s AND question = ANY (%s)",
                (self.id, [spelled(one) for one in batch]),
            )
            rows = await cursor.fetchall()
        return {text: None if kept is None else read_feature(kept) for text, kept in rows}

    async def keep(self, told: Sequence[Told]) -> dict[str, Registered | None]:
        """Written down and committed before it counts."""
        rows = [
            (
                self.id,
                spelled(one.question),
                None if one.parcel is None else key_text(one.parcel.key),
                None if one.parcel is None else Jsonb(_as_told(one.parcel)),
            )
            for one in told
        ]
        # In one order, so that two batches with a question in common cannot wait for each other.
        rows.sort(key=lambda row: row[1])
        async with self.store.connection() as conn, conn.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO tkgm.told (scan, question, key, feature) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                rows,
            )
        return {spelled(one.question): one.parcel for one in told}

    async def unanswered(self) -> set[str]:
        """The questions, as they are spelled, that nobody could answer."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.unanswered WHERE scan = %s", [self.id]
            )
            return {question for (question,) in await cursor.fetchall()}

    async def pass_over(self, question: Question) -> None:
        """Go on without an answer to this question from now on."""
        async with self.store.connection() as conn:
            await conn.execute(
                "INSERT INTO tkgm.unanswered (scan, question) VALUES (%s, %s)"
                " ON CONFLICT DO NOTHING",
                (self.id, spelled(question)),
            )

    async def forget_unanswered(self) -> None:
        """Ask again, when the scan is resumed, what nobody could answer so far."""
        async with self.store.connection() as conn:
            await conn.execute("DELETE FROM tkgm.unanswered WHERE scan = %s", [self.id])

    async def an_answered_one(self) -> Question | None:
        """A question to which a parcel was told; None before the first."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.told WHERE scan = %s AND key IS NOT NULL"
                " ORDER BY told_at DESC LIMIT 1",
                [self.id],
            )
            row = await cursor.fetchone()
        return None if row is None else read_question(row[0])

    async def forget(self, questions: Sequence[str]) -> None:
        """What was told to questions, as they are spelled, counts no more."""
        async with self.store.connection() as conn:
            await conn.execute(
                "DELETE FROM tkgm.told WHERE scan = %s AND question = ANY (%s)",
                (self.id, list(questions)),
            )

    async def empty_points(self) -> list[Point]:
        """Where there is no parcel, as far as was told to this scan and those before."""
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question FROM tkgm.told WHERE scan = %(scan)s AND key IS NULL"
                " UNION SELECT question FROM tkgm.known WHERE scan = %(scan)s AND key IS NULL",
                {"scan": self.id},
            )
            questions = [read_question(text) for (text,) in await cursor.fetchall()]
        return [one for one in questions if isinstance(one, Point)]

    async def finish(self, result: Mapping[str, Any]) -> None:
        """The scan is complete; what the one before it was told is not needed any longer."""
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


def _as_told(parcel: Registered) -> dict[str, Any]:
    """A parcel in the registry's form, to be read again."""
    geometry = None if parcel.geometry is None else mapping(parcel.geometry)
    return {"type": "Feature", "geometry": geometry, "properties": dict(parcel.properties)}
