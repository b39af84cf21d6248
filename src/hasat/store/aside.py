"""What an upstream said that could not be read: kept aside, for a person to look at."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from hasat.store.values import storable_text


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
            [
                (
                    source,
                    run,
                    storable_text(aside.origin),
                    storable_text(aside.reason),
                    aside.content,
                    None if aside.key is None else storable_text(aside.key),
                )
                for aside in asides
            ],
        )
