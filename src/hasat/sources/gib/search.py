"""Search of taxpayers by title, identifier or alias, and the job that builds its index.

The first sync does not wait for the index. Until the job `gib_search` has built the search rows,
a search computes them from the mirror, and the first one starts the build if no worker has. From
then on triggers update the rows of changed records.
"""

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
from hasat.messages import join, msg
from hasat.sources.gib.datasets import DATASETS, SOURCE
from hasat.sources.gib.search_words import (
    SearchWord,
    TitleRank,
    TitleRanking,
    distinctive_text,
    has_letters,
    is_address,
    search_words,
)
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.text import fold

MIN_LETTERS, MAX_LETTERS = 3, 200
MAX_PAGE_SIZE = 100
MAX_SIMILAR = 100
_THRESHOLDS = (0.6, 0.45, 0.33)
_ENOUGH = 0.45
"""The threshold that is not lowered further if anything was found, likely or not."""

_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_PREFIX = "urn:mail:"
_PACKAGE = "hasat.sources.gib"
_JOB = "gib_search"
_LOCK = 8370142692

ReportProgress = Callable[[float, float | None, str], Awaitable[None]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SearchResult:
    """One page of results: published bodies by folded title, then identifier."""

    bodies: Sequence[Any]
    total: int
    indexed: bool
    """Whether the search rows were used."""
    similar: bool = False
    """Whether nothing has all words, and these are the titles most similar to the text."""


async def search(
    conn: AsyncConnection[Any],
    dataset: Dataset,
    *,
    text: str = "",
    alias: str | None = None,
    page: int = 1,
    size: int = 20,
    personal: bool = True,
) -> SearchResult:
    """Return taxpayers who have all words of a text, in any order, and an alias.

    A word is a part of the title, of the identifier or of what the title abbreviates; an address in
    the text is also an alias or its domain. If nothing is found, similar titles are. Without
    `personal`, eleven-digit identifiers (of persons) are excluded.
    """
    ready = await conn.execute("SELECT FROM gib.search_ready WHERE dataset = %s", [dataset.name])
    indexed = ready.rowcount > 0
    if alias is not None and not bare_alias(alias):
        return SearchResult([], 0, indexed)
    condition = _Condition(text, alias)
    query = sql.SQL(load_query(_PACKAGE, "search")).format(
        rows=search_table(dataset) if indexed else _computed_rows(dataset),
        # Stored rows are faster to count and to sort in two scans; computed rows are computed once.
        once=sql.SQL("NOT MATERIALIZED" if indexed else "MATERIALIZED"),
        table=dataset.table,
        matches=condition.sql,
    )
    values = {"personal": personal, "size": size, "skip": (page - 1) * size}
    # Not a prepared statement: the best plan depends on the text.
    found = await conn.execute(query, values | condition.values, prepare=False)
    rows = await found.fetchall()
    bodies = [body for _, body in rows if body is not None]
    total = rows[0][0]
    if total == 0 and indexed and alias is None:
        return await _search_similar(conn, dataset, text, values)
    return SearchResult(bodies, total, indexed)


async def _search_similar(
    conn: AsyncConnection[Any], dataset: Dataset, text: str, values: dict[str, Any]
) -> SearchResult:
    """Return the most similar titles: misspelt words have most of their trigrams in common.

    Trigrams select, and words rank, since swapped letters change many trigrams of a word. The
    threshold falls while no title has a word like each one of the text; it stops early, because
    a lower one reads more of the index.
    """
    words = distinctive_text(text)
    operators = (await load_search_state(conn)).operators if has_letters(words) else None
    if operators is None:
        return SearchResult([], 0, indexed=True)
    query = sql.SQL(load_query(_PACKAGE, "search_similar")).format(
        rows=search_table(dataset), schema=sql.Identifier(operators[0])
    )
    wanted = {**values, "words": words, "text": fold(text), "most": MAX_SIMILAR}
    ranked: list[tuple[str, TitleRank]] = []
    for threshold in _THRESHOLDS:
        await conn.execute(
            "SELECT set_config('pg_trgm.word_similarity_threshold', %s, true)", [str(threshold)]
        )
        rows = await (await conn.execute(query, wanted, prepare=False)).fetchall()
        ranking = TitleRanking(text)
        ranked = [(identifier, ranking.rank(title)) for identifier, title in rows]
        if any(rank.is_likely for _, rank in ranked) or (ranked and threshold <= _ENOUGH):
            break
    # Equal ranks stay in the order of the trigrams.
    ranked.sort(key=lambda one: one[1].score, reverse=True)
    page = [identifier for identifier, _ in ranked][values["skip"] :][: values["size"]]
    found = await conn.execute(
        sql.SQL("SELECT key, body FROM {} WHERE key = ANY (%s)").format(dataset.table), [page]
    )
    bodies = dict(await found.fetchall())
    # A taxpayer who was removed in the meantime has none.
    shown = [bodies[identifier] for identifier in page if identifier in bodies]
    return SearchResult(shown, len(ranked), True, similar=bool(ranked))


class _Condition:
    """The condition of a search, with the values of its parameters."""

    def __init__(self, text: str, alias: str | None) -> None:
        self.values: dict[str, Any] = {}
        words = sql.SQL(" AND ").join([sql.SQL("true"), *map(self._word, search_words(text))])
        if is_address(text):
            words = sql.SQL("(({}) OR {})").format(words, self._alias(text))
        self.sql: sql.Composable = words
        if alias is not None:
            self.sql = sql.SQL("{} AND {}").format(words, self._alias(alias))

    def _word(self, word: SearchWord) -> sql.Composable:
        """Return the condition for a word as it was typed, or for all of its parts."""
        typed = self._contains(word.typed)
        if word.parts in ((), ((word.typed,),)):
            return typed
        parts = [sql.SQL(" OR ").join(map(self._contains, forms)) for forms in word.parts]
        return sql.SQL("({} OR (({})))").format(typed, sql.SQL(") AND (").join(parts))

    def _contains(self, text: str) -> sql.Composable:
        return sql.SQL("line LIKE {}").format(self._parameter(f"%{_escaped(text)}%"))

    def _alias(self, alias: str) -> sql.Composable:
        """Return the condition for an alias as a whole, or for the domain of one."""
        bare = bare_alias(alias)
        domain = bare if bare.startswith("@") else f"@{bare}"
        return sql.SQL("(aliases @> {}::jsonb OR aliases @> {}::jsonb)").format(
            self._parameter(Jsonb([bare])), self._parameter(Jsonb([domain]))
        )

    def _parameter(self, value: Any) -> sql.Composable:
        name = f"value{len(self.values)}"
        self.values[name] = value
        return sql.Placeholder(name)


def search_table(dataset: Dataset) -> sql.Identifier:
    return sql.Identifier("gib", f"search_{dataset.name}")


def bare_alias(alias: str) -> str:
    """Return an alias as in the search rows: trimmed, without `urn:mail:`, A-Z in lower case."""
    return alias.strip().translate(_ASCII_LOWER).removeprefix(_PREFIX)


def _computed_rows(dataset: Dataset) -> sql.Composable:
    """Return a subquery that computes the search rows, while their table is incomplete."""
    return sql.SQL(
        "(SELECT key AS identifier, gib.search_line(key, body) AS line,"
        " gib.search_aliases(body) AS aliases FROM {})"
    ).format(dataset.table)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


@dataclass(frozen=True)
class SearchState:
    """The state of the search rows and their indexes."""

    unready: tuple[str, ...]
    operators: tuple[str, str] | None
    """Schema and name of pg_trgm's operator class, if it is installed."""
    indexed: frozenset[str]
    has_records: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the datasets without rows, or without an index that could be built."""
        unindexed = {d.name for d in DATASETS} - self.indexed if self.operators else set()
        return tuple(d.name for d in DATASETS if d.name in {*self.unready, *unindexed})

    def remark(self) -> str | None:
        """Return a hint for the operator, if searches are slow."""
        if self.unready:
            return msg(
                "Searching {datasets} is slow until the job {job} has run. A worker or the API "
                "will run it soon; to run it now, use `hasat jobs run {job}`.",
                datasets=join(self.unready, ", "),
                job=_JOB,
            )
        if self.operators is None and self.has_records:
            return msg(
                "Each search reads all titles and finds no misspelt ones, because the PostgreSQL "
                "extension pg_trgm is not installed. To change that, have an administrator run "
                "CREATE EXTENSION pg_trgm, then run `hasat jobs run {job}`.",
                job=_JOB,
            )
        return None


async def load_search_state(conn: AsyncConnection[Any]) -> SearchState:
    """Return the current state."""
    cursor = await conn.execute(
        load_query(_PACKAGE, "load_search_state"),
        {"datasets": [d.name for d in DATASETS]},
    )
    row = await cursor.fetchone()
    assert row is not None
    unready, schema, name, indexed, has_records = row
    operators = (schema, name) if name else None
    return SearchState(tuple(sorted(unready)), operators, frozenset(indexed), has_records)


async def enqueue_search_index(store: Store) -> None:
    """Queue the job that builds the index, if it is missing and the job is not queued already.

    A failure is only logged, because the next sync queues it again.
    """
    from hasat.jobs.queue import enqueue

    try:
        async with store.connection() as conn:
            if not (await load_search_state(conn)).missing:
                return
            cursor = await conn.execute(
                "SELECT FROM jobs.run WHERE job = %s AND state <> 'finished'", [_JOB]
            )
            if not cursor.rowcount:
                await enqueue(conn, SEARCH, trigger="schedule")
    except (HasatError, psycopg.Error) as error:
        log.warning("search.not_queued", error=str(error))


async def build_search_index(store: Store, progress: ReportProgress) -> list[str]:
    """Build what is missing and return the datasets; stop if another process is building."""
    await _install_pg_trgm(store)
    async with store.connection() as conn:
        missing = (await load_search_state(conn)).missing
    built = []
    for number, name in enumerate(missing):
        await progress(
            number, len(missing), msg("building the search index of {dataset}", dataset=name)
        )
        dataset = next(dataset for dataset in DATASETS if dataset.name == name)
        async with store.connection() as conn:
            cursor = await conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            if await cursor.fetchone() == (False,):
                break
            await _build(conn, dataset)
            built.append(name)
        async with store.connection() as conn:
            await conn.execute(sql.SQL("ANALYZE {}").format(search_table(dataset)))
    return built


async def try_build_search_index(store: Store) -> None:
    """Build the index; a failure is only logged, because searches work without it."""

    async def ignore(_done: float, _total: float | None, _note: str) -> None:
        return

    try:
        await build_search_index(store, ignore)
    except (HasatError, psycopg.Error) as error:
        log.warning("search.build_failed", error=str(error))


async def _install_pg_trgm(store: Store) -> None:
    """Install pg_trgm if the server has it and the role may; searches work without it."""
    try:
        async with store.connection() as conn:
            await conn.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        log.info("search.pg_trgm_unavailable", error=str(error))


async def _build(conn: AsyncConnection[Any], dataset: Dataset) -> None:
    """Build the rows and indexes of a dataset, locked so that they match the mirror."""
    names = {
        "rows": search_table(dataset),
        "key": sql.Identifier(f"search_{dataset.name}_pkey"),
        "by_line": sql.Identifier(f"search_{dataset.name}_line"),
        "by_alias": sql.Identifier(f"search_{dataset.name}_aliases"),
        "table": dataset.table,
    }

    async def execute(command: str, **more: sql.Composable) -> None:
        await conn.execute(sql.SQL(command).format(**names, **more))

    await execute("LOCK TABLE {rows} IN ACCESS EXCLUSIVE MODE")
    state = await load_search_state(conn)
    if dataset.name in state.unready:
        await execute("DROP INDEX IF EXISTS gib.{by_line}, gib.{by_alias}")
        await execute("ALTER TABLE {rows} DROP CONSTRAINT {key}")
        await execute("TRUNCATE {rows}")
        await execute(
            "INSERT INTO {rows} (identifier, line, aliases)"
            " SELECT key, gib.search_line(key, body) AS line, gib.search_aliases(body)"
            " FROM {table} ORDER BY line"
        )
        await execute("ALTER TABLE {rows} ADD CONSTRAINT {key} PRIMARY KEY (identifier)")
        await conn.execute("INSERT INTO gib.search_ready VALUES (%s)", [dataset.name])
    await execute(
        "CREATE INDEX IF NOT EXISTS {by_alias} ON {rows} USING gin (aliases jsonb_path_ops)"
    )
    if state.operators:
        operators = sql.Identifier(*state.operators)
        await execute(
            "CREATE INDEX IF NOT EXISTS {by_line} ON {rows} USING gin (line {operators})",
            operators=operators,
        )


async def run(context: RunContext) -> Outcome:
    """Build what is missing."""
    built = await build_search_index(context.store, context.progress)
    if not built:
        return Outcome(
            "nothing",
            message=msg("The search index is complete, or another process is building it."),
        )
    return Outcome(detail={"prepared": built})


SEARCH = Job(
    _JOB,
    run,
    msg("Builds the search index of taxpayers after the first sync; a sync queues it if needed."),
    options={},
    source=SOURCE,
)
