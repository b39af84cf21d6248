"""What an upstream said that could not be read: kept aside, for a person to look at."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import AsyncConnection


class Aside(NamedTuple):
    """A piece of an answer: where it stood, what is wrong with it, and whose it seems to be."""

    origin: str
    reason: str
    content: bytes
    key: str | None = None


async def keep_aside(
    conn: AsyncConnection[Any], source: str, run: int | None, asides: Iterable[Aside]
) -> None:
    """Keep the pieces, in the transaction of whoever could not read them."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO raw.set_aside (source, run, origin, reason, content, key)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [(source, run, *aside) for aside in asides],
        )
