"""Carry receipts over the restore of a backup: those that are newer than it must not be lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from hasat.receipts.ledger import Chain, read_chain
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.receipts"


@dataclass(frozen=True)
class CarriedReceipts:
    """The receipts of a database before it is replaced, in a file, with its chain and keys."""

    file: Path
    chain: Chain
    keys: Sequence[tuple[str, bytes]]


async def export_receipts(conn: AsyncConnection[Any], file: Path) -> CarriedReceipts | None:
    """Write every receipt to a file; None if the database has none."""
    found = await conn.execute("SELECT to_regclass('serve.receipt_chain') IS NOT NULL")
    if await found.fetchone() != (True,):
        return None
    async with conn.transaction():
        await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        chain = await read_chain(conn)
        if chain.number == chain.floor:
            return None
        keys = await conn.execute("SELECT kid, public_key FROM serve.receipt_key")
        carried = CarriedReceipts(file, chain, await keys.fetchall())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)
        with file.open("wb") as opened:
            async with conn.cursor() as cursor, cursor.copy(load_query(_PACKAGE, "export")) as copy:
                async for piece in copy:
                    opened.write(piece)
    return carried


async def import_receipts(store: Store, carried: CarriedReceipts) -> bool:
    """Append the receipts that the database lacks.

    Returns False if the two chains are not one: the database is that of another installation, or
    issued receipts of its own meanwhile. It stays as it is then.
    """
    chain = carried.chain
    async with store.connection() as conn:
        await conn.execute("SELECT FROM serve.receipt_chain FOR UPDATE")
        await conn.execute(load_query(_PACKAGE, "carried"))
        with carried.file.open("rb") as opened:
            async with conn.cursor() as cursor, cursor.copy(load_query(_PACKAGE, "import")) as copy:
                while piece := opened.read(1 << 18):
                    await copy.write(piece)
        relation = await conn.execute(load_query(_PACKAGE, "relation"), vars(chain))
        row = await relation.fetchone()
        assert row is not None
        continues, contained = row
        if contained or not continues:
            return bool(contained)
        async with conn.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO serve.receipt_key (kid, public_key) VALUES (%s, %s)"
                " ON CONFLICT DO NOTHING",
                carried.keys,
            )
        await conn.execute(load_query(_PACKAGE, "carry"), vars(chain))
    return True
