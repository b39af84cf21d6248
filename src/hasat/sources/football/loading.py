"""Answers into the mirror: kept in raw and reconciled in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import BrokenAnswerError
from hasat.feed.dataset import Dataset
from hasat.feed.digest import canonical
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.elements import Extract, extract
from hasat.sources.football.envelope import Envelope, read_envelope, spelled
from hasat.sources.football.folding import Fold
from hasat.sources.football.raw import Answer, keep
from hasat.store import Store
from hasat.store.aside import Aside, keep_aside
from hasat.store.statements import statement

_MENDED = "has characters that no text in PostgreSQL can have; U+FFFD stands for them"


async def load(
    store: Store,
    answers: Sequence[Answer],
    *,
    run: int | None,
    retention_days: int,
    leagues: Collection[int] | None = None,
) -> Version | None:
    """Bring the mirror to what these answers say, in their order; None if that is nothing.

    `leagues` are those that may enter, where an answer is about all of them.
    """
    fold = Fold(leagues)
    read: list[tuple[Answer, Envelope]] = []
    asides: list[Aside] = []
    for answer in answers:
        origin = f"/{answer.endpoint} {dict(answer.parameters)}"
        try:
            envelope = read_envelope(answer.body)
        except BrokenAnswerError as error:
            asides.append(Aside(origin, error.message, answer.body))
            continue
        read.append((answer, envelope))
        if envelope.mended:
            asides.append(Aside(origin, _MENDED, answer.body))
        found = understood(answer.endpoint, answer.parameters, envelope)
        fold.add(found)
        asides += [
            Aside(origin, f"{one.dataset}: {one.reason}", canonical(one.body))
            for one in found.unreadable
        ]
    datasets = [DATASETS[name] for name in fold.datasets()]
    if not datasets:
        async with store.connection() as conn:
            await _keep_all(conn, read, asides, run, leagues)
            await _note_told(conn, [answer for answer, _ in read], fold)
        return None
    async with Reconcile.begin(store, datasets) as work:
        await _keep_all(work.connection, read, asides, run, leagues)
        await _note_told(work.connection, [answer for answer, _ in read], fold)
        for dataset in datasets:
            records = await _to_stage(work.connection, dataset, fold)
            await work.stage(dataset, records)
            await work.diff(dataset, fold.scope(dataset.name))
        return await work.write(run=run, retention_days=retention_days)


def understood(endpoint: str, parameters: Mapping[str, str], envelope: Envelope) -> Extract:
    """What an answer says; nothing if it says that something went wrong."""
    if envelope.errors:
        return Extract()
    found = extract(endpoint, parameters, envelope.response)
    if envelope.pages > 1:
        found.covers.clear()
    return found


async def _keep_all(
    conn: AsyncConnection[Any],
    read: Sequence[tuple[Answer, Envelope]],
    asides: Sequence[Aside],
    run: int | None,
    leagues: Collection[int] | None,
) -> None:
    for answer, envelope in read:
        await keep(conn, answer, envelope, run=run, leagues=leagues)
    await keep_aside(conn, SOURCE, run, asides)


async def _note_told(conn: AsyncConnection[Any], answers: Sequence[Answer], fold: Fold) -> None:
    """Remember when each match was told of, or was asked for by its id in vain."""
    by_id = {
        int(number)
        for answer in answers
        if answer.endpoint == "fixtures"
        for name in ("id", "ids")
        for number in answer.parameters.get(name, "").split("-")
        if number.isdecimal()
    }
    told = by_id | {int(key) for key in fold.records.get("fixtures", ())}
    if told:
        await conn.execute(
            statement("hasat.sources.football", "note_told"),
            {"told": sorted(told), "detailed": sorted(by_id)},
        )


async def _to_stage(conn: AsyncConnection[Any], dataset: Dataset, fold: Fold) -> list[Record]:
    """The records to bring in; fillers only where there is nothing yet."""
    records = fold.records.get(dataset.name, {})
    there: set[str] = set()
    if fillers := fold.fillers.get(dataset.name):
        cursor = await conn.execute(
            sql.SQL("SELECT key FROM {} WHERE key = ANY (%s)").format(dataset.table),
            [sorted(fillers)],
        )
        there = {key for (key,) in await cursor.fetchall()}
    return [Record(key, spelled(body)) for key, body in records.items() if key not in there]
