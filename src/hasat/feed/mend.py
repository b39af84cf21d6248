"""Mend: make mirrors what was published again, piece by piece, while the state is still computed.

That a state computed anew is the published one is the usual case and known only at the end. So the
tables are mended on the way, and if it was not the case nothing of that may stay: the caller rolls
back to where it began and uses a Renewal, which puts everything down first.
"""

from collections.abc import Sequence

from psycopg import sql

from hasat.feed.copying import Chunk
from hasat.feed.dataset import Dataset
from hasat.feed.digest import EMPTY, shift
from hasat.feed.reconcile import Reconcile
from hasat.feed.renew import How, Renewed
from hasat.store.queries import load_query

# A piece is small and every table may be large: whatever statistics say, keys are looked up.
_BY_KEY = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "mergejoin", "seqscan")
)
_PIECE = sql.Identifier("piece")


class UnlikeError(Exception):
    """What was put down is not what was published, or not all of what the tables hold."""


class Mending:
    """The published states of some datasets, put down chunk by chunk.

    The datasets' heads are locked by the Reconcile whose transaction this is.
    """

    def __init__(self, work: Reconcile, datasets: Sequence[Dataset]) -> None:
        self._work = work
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._records = dict.fromkeys(self._datasets, 0)
        self._weights = dict.fromkeys(self._datasets, 0)
        self._mended = dict.fromkeys(self._datasets, 0)

    async def open(self) -> None:
        await self._work.connection.execute(_BY_KEY)
        query = sql.SQL(load_query("hasat.feed", "stage")).format(staged=_PIECE)
        await self._work.connection.execute(query)

    async def add(self, name: str, chunk: Chunk) -> None:
        dataset = self._datasets[name]
        if self._work.never_filled(dataset):
            raise UnlikeError
        await self._work.copy(_PIECE, chunk)
        query = sql.SQL(load_query("hasat.feed", "mend")).format(table=dataset.table, staged=_PIECE)
        done = await self._work.connection.execute(query, {"dataset": name})
        await self._work.connection.execute(sql.SQL("TRUNCATE {}").format(_PIECE))
        self._mended[name] += done.rowcount
        self._records[name] += chunk.records
        self._weights[name] += chunk.weight

    async def finish(self) -> list[Renewed]:
        """What became of each dataset, once all was put down."""
        return [await self._result(dataset) for dataset in self._datasets.values()]

    async def _result(self, dataset: Dataset) -> Renewed:
        name = dataset.name
        head, records = self._work.heads[name], self._records[name]
        digest = shift(EMPTY, self._weights[name])
        query = sql.SQL("SELECT count(*) FROM {}").format(dataset.table)
        [there] = await (await self._work.connection.execute(query)).fetchone() or [0]
        if (records, digest, there) != (head.records, head.digest, head.records):
            raise UnlikeError
        how: How = "mended" if self._mended[name] else "intact"
        return Renewed(name, how, records, digest, self._mended[name])
