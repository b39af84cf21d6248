"""Answers into the mirror: kept in raw and reconciled in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.errors import BrokenAnswerError, HasatError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.encoding import canonical
from hasat.feed.guard import Limits, share
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.messages import msg
from hasat.sources.football.datasets import DATASETS, SOURCE
from hasat.sources.football.ingest.elements import (
    Block,
    Extract,
    extract,
    quarantine_without_league,
    unreadable_values,
)
from hasat.sources.football.ingest.envelope import Envelope, encode, read_envelope
from hasat.sources.football.ingest.merge import ResponseMerge
from hasat.sources.football.ingest.raw_store import ApiResponse, store_response
from hasat.sources.football.ingest.scopes import DETAIL_DATASETS, listed_season
from hasat.store import Store
from hasat.store.aside import Aside, keep_aside
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_REPAIRED = "has text or numbers that PostgreSQL cannot store; U+FFFD replaces them"
# Lists that hardly ever lose anything: where much would go, it is rather the answer that lacks it.
_GUARDED = ("timezones", "countries", "leagues", "fixtures")
_FEW = 10


class SuspectResponseError(HasatError):
    """An answer would remove far too much; it was set aside and nothing was changed."""


class UnreadableResponseError(HasatError):
    """No record of a response could be read; all of them were quarantined."""


async def load(
    store: Store,
    answers: Sequence[ApiResponse],
    *,
    run: int | None,
    retention_days: int,
    leagues: Collection[int] | None = None,
    guard: bool = True,
) -> Version | None:
    """Bring the mirror to what these answers say, in their order; None if that is nothing.

    `leagues` are those that may enter, where an answer is about all of them. Where far too much
    would go, a DoubtError says so, unless the guard is off; where no record can be read, a
    NothingReadError.
    """
    fold = ResponseMerge(leagues)
    read: list[tuple[ApiResponse, Envelope]] = []
    asides: list[Aside] = []
    blocks: list[Block] = []
    unreadable = False
    for answer in answers:
        origin = _origin(answer)
        try:
            envelope = read_envelope(answer.body)
        except BrokenAnswerError as error:
            asides.append(Aside(origin, error.message, answer.body))
            continue
        read.append((answer, envelope))
        if envelope.repaired:
            asides.append(Aside(origin, _REPAIRED, answer.body))
        found = extract_records(answer.endpoint, answer.parameters, envelope, leagues)
        fold.add(found)
        blocks += found.blocks
        unreadable = unreadable or bool(found.unreadable)
        asides += [
            Aside(origin, f"{one.dataset}: {one.reason}", canonical(one.body))
            for one in found.unreadable
        ]
        asides += [
            Aside(origin, f"{one.dataset}: {reason}", canonical(one.body), one.key)
            for one in found.elements
            for reason in unreadable_values(one.dataset, one.body)
        ]
    named = fold.datasets()
    if not named:
        async with store.connection() as conn:
            await _store_all(conn, read, asides, run, leagues)
            await _record_fetched(conn, read, fold, blocks)
        if unreadable:
            raise UnreadableResponseError(
                msg("No record of {answers} can be read.", answers=_origin(answers[0]))
            )
        return None
    # Matches first: the details of those that leave the mirror leave it in the same version.
    details = [name for name in DETAIL_DATASETS if fold.scopes("fixtures") and name not in named]
    datasets = [DATASETS[name] for name in sorted([*named, *details], key=_after_matches)]
    try:
        async with Reconcile.begin(store, datasets) as work:
            for dataset in datasets:
                if dataset.name in details and not fold.vanished:
                    work.exclude_dataset(dataset)
                    continue
                scope = fold.scope(dataset.name)
                records = await _records_to_stage(work.connection, dataset, fold, scope)
                await work.stage(dataset, records)
                removed = (await work.diff(dataset, scope)).removed
                if guard and dataset.name in _GUARDED and removed >= _FEW:
                    await _check(work.connection, dataset, scope, removed)
                if dataset.name == "fixtures" and fold.scopes("fixtures"):
                    fold.vanished = await _vanished(work, dataset, fold)
            await _store_all(work.connection, read, asides, run, leagues, fold.vanished)
            await _record_fetched(work.connection, read, fold, blocks)
            version = await work.write(run=run, retention_days=retention_days)
            if fold.vanished:
                await work.connection.execute(
                    "DELETE FROM football.fixture_told WHERE fixture_id = ANY (%s)",
                    [fold.vanished],
                )
                await work.connection.execute(load_query(_PACKAGE, "end_inferences"))
            return version
    except SuspectResponseError as error:
        doubted = [Aside(_origin(answer), error.message, answer.body) for answer in answers]
        async with store.connection() as conn:
            await keep_aside(conn, SOURCE, run, doubted)
        raise


def _after_matches(name: str) -> bool:
    return name != "fixtures"


async def _vanished(work: Reconcile, fixtures: Dataset, fold: ResponseMerge) -> list[int]:
    """Return the matches that leave the mirror, and any that left it without their details."""
    removed = {int(key) for key in await work.removed_keys(fixtures)}
    back = [int(key) for key in fold.records.get("fixtures", ())]
    cursor = await work.connection.execute(
        load_query(_PACKAGE, "forgotten_matches"), {"back": back}
    )
    return sorted(removed | {fixture for (fixture,) in await cursor.fetchall()})


async def _check(conn: AsyncConnection[Any], dataset: Dataset, scope: Scope, removed: int) -> None:
    """Doubt an answer that lacks more of what it is about than ever goes at once."""
    where = scope.where or sql.SQL("true")
    cursor = await conn.execute(
        sql.SQL("SELECT count(*) FROM {} AS m WHERE {}").format(dataset.table, where), scope.values
    )
    [(known,)] = await cursor.fetchall()
    if share(removed, known) > Limits().removed:
        raise SuspectResponseError(
            msg(
                "The answer lacks {removed:,} of {known:,} {dataset} and was set aside.",
                removed=removed,
                known=known,
                dataset=dataset.name,
            ),
            remedy=msg("If they are gone indeed, run the job by hand with accept_removals=true."),
        )


def _origin(answer: ApiResponse) -> str:
    return f"/{answer.endpoint} {dict(answer.parameters)}"


def extract_records(
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
        quarantine_without_league(found)
    if envelope.is_partial:
        found.scopes.clear()
        found.blocks.clear()
    return found


async def _store_all(
    conn: AsyncConnection[Any],
    read: Sequence[tuple[ApiResponse, Envelope]],
    asides: Sequence[Aside],
    run: int | None,
    leagues: Collection[int] | None,
    vanished: Collection[int] = (),
) -> None:
    for answer, envelope in read:
        await store_response(conn, answer, envelope, run=run, leagues=leagues, vanished=vanished)
    await keep_aside(conn, SOURCE, run, asides)


async def _record_fetched(
    conn: AsyncConnection[Any],
    read: Sequence[tuple[ApiResponse, Envelope]],
    fold: ResponseMerge,
    blocks: Sequence[Block],
) -> None:
    """Remember when each match was told of, or was asked for by its id in vain.

    Also which of its details came as empty lists, and how many matches a whole season has.
    """
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
            load_query(_PACKAGE, "note_told"),
            {"asked": sorted(told | by_id), "told": sorted(told), "detailed": sorted(told & by_id)},
        )
    if blocks:
        fixtures, names, empty = (list(column) for column in zip(*blocks, strict=True))
        await conn.execute(
            load_query(_PACKAGE, "note_blocks"),
            {"fixtures": fixtures, "blocks": names, "empty": empty},
        )
    for answer, envelope in read:
        listed = listed_season(answer.endpoint, answer.parameters)
        if listed and envelope.row_count and not envelope.errors:
            league, season = listed
            await conn.execute(
                load_query(_PACKAGE, "note_listed"),
                {"league": league, "season": season, "matches": envelope.row_count},
            )


async def _records_to_stage(
    conn: AsyncConnection[Any], dataset: Dataset, fold: ResponseMerge, scope: Scope
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
    return [Record(key, encode(body)) for key, body in records.items() if key not in there]
