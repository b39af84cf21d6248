"""Loading of responses: stored raw and reconciled with the mirror in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from psycopg import AsyncConnection, sql

from hasat.errors import BrokenAnswerError, HasatError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.encoding import canonical
from hasat.feed.guard import Measure, measure_removals
from hasat.feed.holds import check_guard
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.messages import msg
from hasat.sources.football.endpoints import DATASETS, SOURCE
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
from hasat.store.quarantine import QuarantinedRecord, quarantine
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
_REPAIRED = "has text or numbers that PostgreSQL cannot store; U+FFFD replaces them"
# Lists that hardly ever lose records: many removals at once mean an incomplete response.
_GUARDED = ("timezones", "countries", "leagues", "fixtures")
_UNGUARDED_REMOVALS = 9


class UnreadableResponseError(HasatError):
    """No record of a response could be read; all of them were quarantined."""


async def load(
    store: Store,
    responses: Sequence[ApiResponse],
    *,
    run: int | None,
    retention_days: int,
    leagues: Collection[int] | None = None,
    newer_than: datetime | None = None,
    approving: int | None = None,
) -> Version | None:
    """Store responses and reconcile the mirror with them, in their order.

    `leagues` restricts the records, for responses that are about all leagues. Return None if no
    dataset is affected. Raise GuardError if there are too many removals, and nothing is stored;
    raise UnreadableResponseError if no record can be read. Responses of a hold have `newer_than`,
    the time of the hold: the guard lets them pass, and what has changed since stays.
    """
    merge = ResponseMerge(leagues)
    read: list[tuple[ApiResponse, Envelope]] = []
    quarantined: list[QuarantinedRecord] = []
    blocks: list[Block] = []
    unreadable = False
    for response in responses:
        origin = _origin(response)
        try:
            envelope = read_envelope(response.body, response.parsed)
        except BrokenAnswerError as error:
            quarantined.append(QuarantinedRecord(origin, error.message, response.body))
            continue
        read.append((response, envelope))
        if envelope.repaired:
            quarantined.append(QuarantinedRecord(origin, _REPAIRED, response.body))
        found = extract_records(response.endpoint, response.parameters, envelope, leagues)
        merge.add(found)
        blocks += found.blocks
        unreadable = unreadable or bool(found.unreadable)
        quarantined += [
            QuarantinedRecord(origin, f"{one.dataset}: {one.reason}", canonical(one.body))
            for one in found.unreadable
        ]
        quarantined += [
            QuarantinedRecord(origin, f"{one.dataset}: {reason}", canonical(one.body), one.key)
            for one in found.elements
            for reason in unreadable_values(one.dataset, one.body)
        ]
    named = merge.datasets()
    if not named:
        async with store.connection() as conn:
            await _store_all(conn, read, quarantined, run, leagues)
            await _record_fetched(conn, read, merge, blocks)
        if unreadable:
            raise UnreadableResponseError(
                msg(
                    "No record of the response to {request} can be read.",
                    request=_origin(responses[0]),
                )
            )
        return None
    # Matches come first: the details of removed matches are removed in the same version.
    details = [
        name for name in DETAIL_DATASETS if merge.has_scope("fixtures") and name not in named
    ]
    datasets = [DATASETS[name] for name in sorted([*named, *details], key=_after_matches)]
    async with Reconcile.begin(store, datasets) as work:
        measures: list[Measure] = []
        staged: list[Dataset] = []
        for dataset in datasets:
            if dataset.name in details and not merge.vanished:
                work.exclude_dataset(dataset)
                continue
            scope = merge.scope(dataset.name)
            newer = await _newer_keys(work.connection, dataset, newer_than)
            records = await _records_to_stage(work.connection, dataset, merge, scope)
            await work.stage(dataset, [one for one in records if one.key not in newer])
            counts = await work.diff(dataset, scope, newer)
            staged.append(dataset)
            if dataset.name in _GUARDED and newer_than is None:
                measures += await _measure(work, dataset, scope, counts.removed, responses)
            if dataset.name == "fixtures" and merge.has_scope("fixtures"):
                merge.vanished = await _vanished(work, dataset, merge)
        await check_guard(work, staged, measures, approving=approving)
        await _store_all(work.connection, read, quarantined, run, leagues, merge.vanished)
        await _record_fetched(work.connection, read, merge, blocks)
        version = await work.write(run=run, retention_days=retention_days, approving=approving)
        if merge.vanished:
            await work.connection.execute(
                "DELETE FROM football.fixture_told WHERE fixture_id = ANY (%s)",
                [merge.vanished],
            )
            await work.connection.execute(load_query(_PACKAGE, "end_inferences"))
    return version


def _after_matches(name: str) -> bool:
    return name != "fixtures"


async def _vanished(work: Reconcile, fixtures: Dataset, merge: ResponseMerge) -> list[int]:
    """Return the matches that this load removes, and any removed earlier without their details."""
    removed = {int(key) for key in await work.removed_keys(fixtures)}
    returning = [int(key) for key in merge.records.get("fixtures", ())]
    cursor = await work.connection.execute(
        load_query(_PACKAGE, "orphaned_matches"), {"returning": returning}
    )
    return sorted(removed | {fixture for (fixture,) in await cursor.fetchall()})


async def _measure(
    work: Reconcile,
    dataset: Dataset,
    scope: Scope,
    removed: int,
    responses: Sequence[ApiResponse],
) -> tuple[Measure, ...]:
    """Return the share of the scope's records that would be removed."""
    if removed <= _UNGUARDED_REMOVALS:
        return ()
    cursor = await work.connection.execute(
        sql.SQL("SELECT count(*) FROM {} AS m WHERE {}").format(
            dataset.table, scope.where or sql.SQL("true")
        ),
        scope.values,
    )
    [(known,)] = await cursor.fetchall()
    requests = ", ".join(
        f"/{one.endpoint}?{urlencode(one.parameters)}".rstrip("?") for one in responses
    )
    subject = f"{dataset.name} ({requests})"
    return measure_removals(subject, removed, known, dataset.guard)


async def _newer_keys(
    conn: AsyncConnection[Any], dataset: Dataset, than: datetime | None
) -> set[str]:
    """Return the records that changed after a time, and the matches that were received since."""
    if than is None:
        return set()
    query = sql.SQL("SELECT key FROM {} WHERE changed_at > %s").format(dataset.table)
    keys = {key for (key,) in await (await conn.execute(query, [than])).fetchall()}
    if dataset.name == "fixtures":
        cursor = await conn.execute(load_query(_PACKAGE, "newer_fixtures"), {"than": than})
        keys |= {key for (key,) in await cursor.fetchall()}
    return keys


def _origin(response: ApiResponse) -> str:
    return f"/{response.endpoint} {dict(response.parameters)}"


def extract_records(
    endpoint: str,
    parameters: Mapping[str, str],
    envelope: Envelope,
    leagues: Collection[int] | None,
) -> Extract:
    """Extract the records of an envelope; an error response has none."""
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
    quarantined: Sequence[QuarantinedRecord],
    run: int | None,
    leagues: Collection[int] | None,
    vanished: Collection[int] = (),
) -> None:
    for response, envelope in read:
        await store_response(conn, response, envelope, run=run, leagues=leagues, vanished=vanished)
    await quarantine(conn, SOURCE, run, quarantined)


async def _record_fetched(
    conn: AsyncConnection[Any],
    read: Sequence[tuple[ApiResponse, Envelope]],
    merge: ResponseMerge,
    blocks: Sequence[Block],
) -> None:
    """Record when each match was received, or requested by its id and missing.

    Also record which of its details were empty lists, and how many matches a whole season has.
    """
    by_id = {
        int(number)
        for response, envelope in read
        if response.endpoint == "fixtures" and not envelope.errors
        for name in ("id", "ids")
        for number in response.parameters.get(name, "").split("-")
        if number.isdecimal()
    }
    received = {int(key) for key in merge.records.get("fixtures", ())}
    if received or by_id:
        await conn.execute(
            load_query(_PACKAGE, "record_fixtures"),
            {
                "requested": sorted(received | by_id),
                "received": sorted(received),
                "detailed": sorted(received & by_id),
            },
        )
    if blocks:
        fixtures, names, empty = (list(column) for column in zip(*blocks, strict=True))
        await conn.execute(
            load_query(_PACKAGE, "record_blocks"),
            {"fixtures": fixtures, "blocks": names, "empty": empty},
        )
    for response, envelope in read:
        listed = listed_season(response.endpoint, response.parameters)
        if listed and envelope.row_count and not envelope.errors:
            league, season = listed
            await conn.execute(
                load_query(_PACKAGE, "record_listed"),
                {"league": league, "season": season, "matches": envelope.row_count},
            )


async def _records_to_stage(
    conn: AsyncConnection[Any], dataset: Dataset, merge: ResponseMerge, scope: Scope
) -> list[Record]:
    """Return the records to stage; partial ones only where the mirror has no record."""
    records = merge.records.get(dataset.name, {})
    existing: set[str] = set()
    if fillers := merge.fillers.get(dataset.name):
        cursor = await conn.execute(
            sql.SQL(
                "SELECT m.key FROM {} AS m WHERE m.key = ANY (%(fillers)s) AND ({}) IS NOT TRUE"
            ).format(dataset.table, scope.where or sql.SQL("true")),
            {"fillers": sorted(fillers), **scope.values},
        )
        existing = {key for (key,) in await cursor.fetchall()}
    return [Record(key, encode(body)) for key, body in records.items() if key not in existing]
