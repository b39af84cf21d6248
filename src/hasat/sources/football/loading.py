"""Answers into the mirror: kept in raw and reconciled in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import BrokenAnswerError, HasatError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.digest import canonical
from hasat.feed.guard import Limits, share
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.elements import Extract, extract
from hasat.sources.football.envelope import Envelope, read_envelope, spelled
from hasat.sources.football.folding import Fold, set_aside_nobodys
from hasat.sources.football.raw import Answer, keep
from hasat.store import Store
from hasat.store.aside import Aside, keep_aside
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"
_MENDED = "has characters that no text in PostgreSQL can have; U+FFFD stands for them"
# Lists that hardly ever lose anything: where much would go, it is rather the answer that lacks it.
_GUARDED = ("timezones", "countries", "leagues", "fixtures")
_FEW = 10


class DoubtError(HasatError):
    """An answer would remove far too much; it was set aside and nothing was changed."""


async def load(
    store: Store,
    answers: Sequence[Answer],
    *,
    run: int | None,
    retention_days: int,
    leagues: Collection[int] | None = None,
    guard: bool = True,
) -> Version | None:
    """Bring the mirror to what these answers say, in their order; None if that is nothing.

    `leagues` are those that may enter, where an answer is about all of them. Where far too much
    would go, a DoubtError says so, unless the guard is off.
    """
    fold = Fold(leagues)
    read: list[tuple[Answer, Envelope]] = []
    asides: list[Aside] = []
    for answer in answers:
        origin = _origin(answer)
        try:
            envelope = read_envelope(answer.body)
        except BrokenAnswerError as error:
            asides.append(Aside(origin, error.message, answer.body))
            continue
        read.append((answer, envelope))
        if envelope.mended:
            asides.append(Aside(origin, _MENDED, answer.body))
        found = understood(answer.endpoint, answer.parameters, envelope, leagues)
        fold.add(found)
        asides += [
            Aside(origin, f"{one.dataset}: {one.reason}", canonical(one.body))
            for one in found.unreadable
        ]
    datasets = [DATASETS[name] for name in fold.datasets()]
    if not datasets:
        async with store.connection() as conn:
            await _keep_all(conn, read, asides, run, leagues)
            await _note_told(conn, read, fold)
        return None
    try:
        async with Reconcile.begin(store, datasets) as work:
            await _keep_all(work.connection, read, asides, run, leagues)
            await _note_told(work.connection, read, fold)
            for dataset in datasets:
                scope = fold.scope(dataset.name)
                records = await _to_stage(work.connection, dataset, fold, scope)
                await work.stage(dataset, records)
                removed = (await work.diff(dataset, scope)).removed
                if guard and dataset.name in _GUARDED and removed >= _FEW:
                    await _check(work.connection, dataset, scope, removed)
            version = await work.write(run=run, retention_days=retention_days)
            if "fixtures" in version.counts and version.counts["fixtures"].removed:
                await work.connection.execute(statement(_ROOM, "end_inferences"))
            return version
    except DoubtError as error:
        doubted = [Aside(_origin(answer), error.message, answer.body) for answer in answers]
        async with store.connection() as conn:
            await keep_aside(conn, SOURCE, run, doubted)
        raise


async def _check(conn: AsyncConnection[Any], dataset: Dataset, scope: Scope, removed: int) -> None:
    """Doubt an answer that lacks more of what it is about than ever goes at once."""
    where = scope.where or sql.SQL("true")
    cursor = await conn.execute(
        sql.SQL("SELECT count(*) FROM {} AS m WHERE {}").format(dataset.table, where), scope.values
    )
    [(known,)] = await cursor.fetchall()
    if share(removed, known) > Limits().removed:
        raise DoubtError(
            f"The answer lacks {removed:,} of {known:,} {dataset.name} and was set aside.",
            remedy="If they are gone indeed, run the job by hand with accept_removals=true.",
        )


def _origin(answer: Answer) -> str:
    return f"/{answer.endpoint} {dict(answer.parameters)}"


def understood(
    endpoint: str,
    parameters: Mapping[str, str],
    envelope: Envelope,
    leagues: Collection[int] | None,
) -> Extract:
    """What an answer says; nothing if it says that something went wrong."""
    if envelope.errors:
        return Extract()
    found = extract(endpoint, parameters, envelope.response)
    if leagues is not None:
        set_aside_nobodys(found)
    if envelope.is_part:
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


async def _note_told(
    conn: AsyncConnection[Any], read: Sequence[tuple[Answer, Envelope]], fold: Fold
) -> None:
    """Remember when each match was told of, or was asked for by its id in vain."""
    by_id = {
        int(number)
        for answer, envelope in read
        if answer.endpoint == "fixtures" and not envelope.errors
        for name in ("id", "ids")
        for number in answer.parameters.get(name, "").split("-")
        if number.isdecimal()
    }
    told = {int(key) for key in fold.records.get("fixtures", ())}
    if told or by_id:
        await conn.execute(
            statement(_ROOM, "note_told"),
            {"asked": sorted(told | by_id), "told": sorted(told), "detailed": sorted(told & by_id)},
        )


async def _to_stage(
    conn: AsyncConnection[Any], dataset: Dataset, fold: Fold, scope: Scope
) -> list[Record]:
    """The records to bring in; fillers only where there is nothing yet, or not any more."""
    records = fold.records.get(dataset.name, {})
    there: set[str] = set()
    if fillers := fold.fillers.get(dataset.name):
        cursor = await conn.execute(
            sql.SQL(
                "SELECT m.key FROM {} AS m WHERE m.key = ANY (%(fillers)s) AND ({}) IS NOT TRUE"
            ).format(dataset.table, scope.where or sql.SQL("true")),
            {"fillers": sorted(fillers), **scope.values},
        )
        there = {key for (key,) in await cursor.fetchall()}
    return [Record(key, spelled(body)) for key, body in records.items() if key not in there]
