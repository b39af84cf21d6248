"""The tables and indexes of declared datasets, made and kept up to date when the store opens.

A dataset without a table of its source's migrations gets one of the common shape. Columns are
projections, so a declaration that gains a column changes no table; an indexed column gets an index
on its expression, and an index that is no longer declared goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from hasat.feed.dataset import Dataset
from hasat.store.migrate import Step
from hasat.store.queries import load_query

_MARK = "declared column"


@dataclass(frozen=True)
class TableDeclaration:
    """The tables and indexes of datasets, for a source's migrations to call after their files."""

    datasets: tuple[Dataset, ...]

    async def __call__(self, connection: AsyncConnection[TupleRow]) -> Sequence[Step]:
        """Return the statements that make what is missing and drop what is not declared."""
        values = {"datasets": [dataset.name for dataset in self.datasets], "mark": _MARK}
        found = await connection.execute(load_query("hasat.feed", "declared_tables"), values)
        known = {name: (made, set(indexes)) for name, made, indexes in await found.fetchall()}
        return [step for one in self.datasets for step in _steps(one, *known[one.name])]

    def __str__(self) -> str:
        """Return the names of the tables and indexes."""
        named = [
            [one.name, *(column.index_name(one.name) for column in one.columns if column.indexed)]
            for one in self.datasets
        ]
        return str(named)


def _steps(dataset: Dataset, has_table: bool, indexes: set[str]) -> Sequence[Step]:
    steps = []
    if not has_table:
        steps.append(_step(dataset.name, "make_table", dataset))
    declared = {
        column.index_name(dataset.name): column for column in dataset.columns if column.indexed
    }
    for name in sorted(indexes - declared.keys()):
        statement = sql.SQL("DROP INDEX {}").format(sql.Identifier("core", name))
        steps.append(Step(f"{name} (dropped)", statement))
    for name, column in declared.items():
        if name not in indexes:
            parts = {
                "index": sql.Identifier(name),
                "qualified": sql.Identifier("core", name),
                "value": column.sorted(None),
                "mark": sql.Literal(_MARK),
            }
            steps.append(_step(name, "make_index", dataset, **parts))
    return steps


def _step(name: str, query: str, dataset: Dataset, **parts: sql.Composable) -> Step:
    statement = sql.SQL(load_query("hasat.feed", query)).format(
        table=dataset.table,
        primary_key=sql.Identifier(f"{dataset.name}_pkey"),
        dataset=sql.Literal(dataset.name),
        source=sql.Literal(dataset.source),
        **parts,
    )
    return Step(name, statement)
