"""Finding taxpayers by a part of their title or identifier, or by an alias."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from hasat.feed.dataset import Dataset
from hasat.store.queries import load_query
from hasat.text import fold

LEAST_LETTERS, MOST_LETTERS = 3, 200
MOST_ON_A_PAGE = 100

_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PREFIX = "urn:mail:"


@dataclass(frozen=True)
class Found:
    """One page of what a search found: published bodies, by folded title, then identifier."""

    bodies: Sequence[Any]
    total: int
    prepared: bool
    """Whether the search rows were there to read."""


async def search(
    conn: AsyncConnection[Any],
    dataset: Dataset,
    *,
    text: str = "",
    alias: str | None = None,
    page: int = 1,
    size: int = 20,
    personal: bool = True,
) -> Found:
    """Taxpayers whose title or identifier has this text in it, and who have this alias.

    Without `personal`, eleven-digit identifiers are left out.
    """
    ready = await conn.execute("SELECT FROM gib.search_ready WHERE dataset = %s", [dataset.name])
    prepared = ready.rowcount > 0
    if alias is not None and not bare_alias(alias):
        return Found([], 0, prepared)
    query = sql.SQL(load_query("hasat.sources.gib", "search")).format(
        rows=search_table(dataset) if prepared else _computed_rows(dataset),
        # Rows at hand are quicker counted and sorted apart; computed ones are computed once.
        once=sql.SQL("NOT MATERIALIZED" if prepared else "MATERIALIZED"),
        table=dataset.table,
    )
    values = {
        "like": f"%{_escaped(fold(text))}%",
        "alias": None if alias is None else Jsonb([bare_alias(alias)]),
        "personal": personal,
        "size": size,
        "skip": (page - 1) * size,
    }
    # Unprepared: which plan is best depends on what is searched for.
    rows = await (await conn.execute(query, values, prepare=False)).fetchall()
    return Found([body for _, body in rows if body is not None], rows[0][0], prepared)


def search_table(dataset: Dataset) -> sql.Identifier:
    return sql.Identifier("gib", f"search_{dataset.name}")


def bare_alias(alias: str) -> str:
    """An alias as the search rows have it: trimmed, without `urn:mail:`, A-Z in lower case."""
    return alias.strip().translate(_ASCII_LOWER).removeprefix(_PREFIX)


def _computed_rows(dataset: Dataset) -> sql.Composable:
    """The search rows while the table of them is not complete: right as well, only slower."""
    return sql.SQL(
        "(SELECT key AS identifier, gib.search_line(key, body) AS line,"
        " gib.search_aliases(body) AS aliases FROM {})"
    ).format(dataset.table)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
