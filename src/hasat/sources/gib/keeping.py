"""What a sync keeps beside the mirror: taxpayers' parts, and records that could not be read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.parts import Kept, dump_parts, load_parts
from hasat.sources.gib.records import SetAside
from hasat.store.aside import Aside, keep_aside
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.gib"

Parts = dict[str, list[Kept]]
"""A taxpayer's lines by list."""


async def parts_of(conn: AsyncConnection[Any], identifiers: Sequence[str]) -> dict[str, Parts]:
    """The kept parts of taxpayers."""
    cursor = await conn.execute(
        "SELECT identifier, parts FROM gib.taxpayer WHERE identifier = ANY (%s)", [identifiers]
    )
    return {identifier: load_parts(parts) async for identifier, parts in cursor}


async def odd_identifiers(conn: AsyncConnection[Any]) -> set[str]:
    """Those that are no number, so that fingerprints do not tell whose they are."""
    cursor = await conn.execute(
        "SELECT identifier FROM gib.taxpayer WHERE identifier !~ '^[0-9]{1,18}$'"
    )
    return {identifier async for (identifier,) in cursor}


async def note_touched(conn: AsyncConnection[Any], identifiers: Iterable[str]) -> None:
    """Put down, until the transaction ends, of which taxpayers a record came or went."""
    await conn.execute('CREATE TEMP TABLE touched (key text COLLATE "C" NOT NULL) ON COMMIT DROP')
    async with conn.cursor() as cursor, cursor.copy("COPY touched FROM STDIN") as copy:
        for identifier in identifiers:
            await copy.write_row((identifier,))
    await conn.execute("ANALYZE touched")


async def keep_taxpayers(conn: AsyncConnection[Any], after: Mapping[str, Parts]) -> None:
    """Keep the parts of these taxpayers as they are now; who has none is forgotten."""
    gone = [identifier for identifier, parts in after.items() if not any(parts.values())]
    kept = {
        identifier: dump_parts(parts["PK"], parts["GB"]).decode()
        for identifier, parts in after.items()
        if any(parts.values())
    }
    await conn.execute("DELETE FROM gib.taxpayer WHERE identifier = ANY (%s)", [gone])
    await conn.execute(
        load_query(_PACKAGE, "keep_taxpayers"),
        {"identifiers": list(kept), "parts": list(kept.values())},
    )


async def keep_set_aside(
    conn: AsyncConnection[Any], run: int, set_aside: Mapping[str, list[SetAside]]
) -> None:
    """Put records that could not be read where a person can look at them."""
    asides = [
        Aside(f"{box} list, byte {one.offset}", one.reason, one.raw, one.identifier)
        for box, found in set_aside.items()
        for one in found
    ]
    await keep_aside(conn, SOURCE, run, asides)


async def decide_held(conn: AsyncConnection[Any], approved: int | None) -> None:
    """The mirror moved on: the approved run is done, others that waited are out of date."""
    await conn.execute(load_query(_PACKAGE, "decide_held"), {"approved": approved})
