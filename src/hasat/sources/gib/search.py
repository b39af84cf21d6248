"""Finding taxpayers by a part of their title or identifier, or by an alias."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from hasat.errors import HasatError
from hasat.feed.dataset import Dataset
from hasat.jobs import Job, Outcome, RunContext
from hasat.jobs.queue import enqueue
from hasat.messages import join, msg
from hasat.sources.gib.datasets import DATASETS, SOURCE
from hasat.store import Store
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


Tell = Callable[[float, float | None, str], Awaitable[None]]

NAME = "gib_search"
_LOCK = 8370142692

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SearchState:
    """How far the search is prepared."""

    unready: tuple[str, ...]
    operators: tuple[str, str] | None
    """Schema and name of pg_trgm's operators for indexes, where it is installed."""
    indexed: frozenset[str]
    filled: bool
    """Whether there is anything to search."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The datasets of which rows or an index that could be there are missing."""
        unindexed = {d.name for d in DATASETS} - self.indexed if self.operators else set()
        return tuple(d.name for d in DATASETS if d.name in {*self.unready, *unindexed})

    def remark(self) -> str | None:
        """What the operator may want to know."""
        if self.unready:
            return msg(
                "Searching {datasets} is slow until the job {job} has run. A worker or the API "
                "does it soon; or run `hasat jobs run {job}`.",
                datasets=join(self.unready, ", "),
                job=NAME,
            )
        if self.operators is None and self.filled:
            return msg(
                "Each search reads all titles, because PostgreSQL's extension pg_trgm is not "
                "installed in this database. To speed searches up, let an administrator run "
                "CREATE EXTENSION pg_trgm, then run `hasat jobs run {job}`.",
                job=NAME,
            )
        return None


async def search_state(conn: AsyncConnection[Any]) -> SearchState:
    """What is there now."""
    cursor = await conn.execute(
        load_query("hasat.sources.gib", "search_state"), {"datasets": [d.name for d in DATASETS]}
    )
    row = await cursor.fetchone()
    assert row is not None
    unready, schema, name, indexed, filled = row
    operators = (schema, name) if name else None
    return SearchState(tuple(sorted(unready)), operators, frozenset(indexed), filled)


async def order_search(store: Store) -> None:
    """Have a worker prepare the search, if there is anything to prepare and none is about to.

    Never fails: the next sync orders it again.
    """
    try:
        async with store.connection() as conn:
            if not (await search_state(conn)).missing:
                return
            cursor = await conn.execute(
                "SELECT FROM jobs.run WHERE job = %s AND state <> 'finished'", [NAME]
            )
            if not cursor.rowcount:
                await enqueue(conn, SEARCH, trigger="schedule")
    except (HasatError, psycopg.Error) as error:
        log.warning("the search could not be ordered", reason=str(error))


async def prepare_search(store: Store, tell: Tell) -> list[str]:
    """Make what is missing, unless somebody else is at it; returns what was worked on."""
    await _install_trigrams(store)
    async with store.connection() as conn:
        missing = (await search_state(conn)).missing
    prepared = []
    for number, name in enumerate(missing):
        await tell(number, len(missing), msg("preparing the search of {dataset}", dataset=name))
        dataset = next(dataset for dataset in DATASETS if dataset.name == name)
        async with store.connection() as conn:
            cursor = await conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            if await cursor.fetchone() == (False,):
                break
            await _prepare(conn, dataset)
            prepared.append(name)
        async with store.connection() as conn:
            await conn.execute(sql.SQL("ANALYZE {}").format(search_table(dataset)))
    return prepared


async def prepare_quietly(store: Store) -> None:
    """The same for those who can do without."""

    async def quiet(_done: float, _total: float | None, _note: str) -> None:
        return

    try:
        await prepare_search(store, quiet)
    except (HasatError, psycopg.Error) as error:
        log.warning("the search could not be prepared", reason=str(error))


async def _install_trigrams(store: Store) -> None:
    """pg_trgm where the server has it and we may; without it the search does without."""
    try:
        async with store.connection() as conn:
            await conn.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        log.info("pg_trgm cannot be installed; searches read all titles", reason=str(error))


async def _prepare(conn: AsyncConnection[Any], dataset: Dataset) -> None:
    """One transaction; the lock comes first, so that the rows are of one state with the mirror."""
    names = {
        "rows": search_table(dataset),
        "key": sql.Identifier(f"search_{dataset.name}_pkey"),
        "by_line": sql.Identifier(f"search_{dataset.name}_line"),
        "by_alias": sql.Identifier(f"search_{dataset.name}_aliases"),
        "table": dataset.table,
    }

    async def do(command: str, **more: sql.Composable) -> None:
        await conn.execute(sql.SQL(command).format(**names, **more))

    await do("LOCK TABLE {rows} IN ACCESS EXCLUSIVE MODE")
    state = await search_state(conn)
    if dataset.name in state.unready:
        await do("DROP INDEX IF EXISTS gib.{by_line}, gib.{by_alias}")
        await do("ALTER TABLE {rows} DROP CONSTRAINT {key}")
        await do("TRUNCATE {rows}")
        await do(
            "INSERT INTO {rows} (identifier, line, aliases)"
            " SELECT key, gib.search_line(key, body) AS line, gib.search_aliases(body)"
            " FROM {table} ORDER BY line"
        )
        await do("ALTER TABLE {rows} ADD CONSTRAINT {key} PRIMARY KEY (identifier)")
        await conn.execute("INSERT INTO gib.search_ready VALUES (%s)", [dataset.name])
    await do("CREATE INDEX IF NOT EXISTS {by_alias} ON {rows} USING gin (aliases jsonb_path_ops)")
    if state.operators:
        operators = sql.Identifier(*state.operators)
        await do(
            "CREATE INDEX IF NOT EXISTS {by_line} ON {rows} USING gin (line {operators})",
            operators=operators,
        )


async def run(context: RunContext) -> Outcome:
    """Prepare what is missing."""
    prepared = await prepare_search(context.store, context.progress)
    if not prepared:
        return Outcome("nothing", message=msg("The search is prepared, or about to be by another."))
    return Outcome(detail={"prepared": prepared})


SEARCH = Job(
    NAME,
    run,
    "Prepares the search of taxpayers after a first sync; every sync orders it where needed.",
    options={},
    source=SOURCE,
)
