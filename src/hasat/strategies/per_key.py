"""PerKey: one request per record, oldest first, for the keys of a watch set."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from psycopg import sql

from hasat.budget import Budget, Remaining, Upstream
from hasat.errors import OutOfQuotaError, UnavailableError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.guard import measure_removals
from hasat.feed.holds import check_guard
from hasat.feed.raw import (
    RawRequest,
    expire_responses,
    iter_applied,
    mark_applied,
    mark_newest_applied,
    store_body,
)
from hasat.feed.rebuild import OnResponses, RebuildSummary
from hasat.feed.reconcile import Reconcile, Record
from hasat.fetch import Client, ClientOptions, Fetcher, FetchResult, Request, RequestContext
from hasat.fetch import Outcome as RequestOutcome
from hasat.fetch.outcomes import Classify, classify_status
from hasat.jobs import Job, Outcome, RunContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine
from hasat.store.queries import load_query
from hasat.strategies.records import record_of
from hasat.strategies.watched_keys import add_keys, due_keys, note_attempt
from hasat.strategies.whole_list import no_headers, nothing_stored, rebuild_from, upstream_of

_MAX_FAILURES = 3
"""Requests in a row without a response after which a run fails."""
# One record that ceases to exist is no sign of a broken upstream, however small the dataset is.
_UNGUARDED_REMOVALS = 1
_INPUT = "keys"
_ABSENT = {"absent": True}


def _no_keys(_: Settings) -> Iterable[str]:
    return ()


def _nothing_stated(_: Mapping[str, str]) -> Remaining:
    return Remaining()


@dataclass(frozen=True)
class PerKey:
    """Request the records of a watch set one by one, and store what changed.

    `path` has the place `{key}`; `parse` returns the body from the key and the bytes of a response.
    A record is requested again after `max_age`, the one whose last attempt is the oldest first; at
    the end of the budget the run ends, and the next one continues. A response 404 or 410 removes
    the record at the end of the run, under the guard. `keys` are watched in any case; others are
    added with `add_keys`.
    """

    base_url: str | Callable[[Settings], str]
    path: str
    parse: Callable[[str, bytes], Any]
    keys: Callable[[Settings], Iterable[str]] = _no_keys
    max_age: timedelta = timedelta(days=7)
    cron: str | None = "30 * * * *"
    upstream: Upstream | Callable[[Settings], Upstream] | None = None
    lane: str = "daily"
    headers: Callable[[Settings], Mapping[str, str]] = no_headers
    classify: Classify = classify_status
    remaining: Callable[[Mapping[str, str]], Remaining] = _nothing_stated
    max_requests: int = 1_000
    """The keys that one run requests at most."""
    timeout_seconds: float = 30.0
    raw_retention_days: int = 30

    def job(self, dataset: Dataset, name: str | None = None) -> Job:
        """Return the job that refreshes the dataset; by default it is named `<dataset>_refresh`."""
        return Job(
            name or f"{dataset.name}_refresh",
            partial(self._run, dataset),
            msg("Requests the oldest records of {dataset} again.", dataset=dataset.name),
            cron=self.cron,
            lane=self.lane,
            options={},
            source=dataset.source,
        )

    async def rebuild(
        self,
        store: Store,
        settings: Settings,
        dataset: Dataset,
        *,
        run: int | None = None,
        approving: int | None = None,
        on_progress: OnResponses | None = None,
    ) -> RebuildSummary:
        """Recompute the dataset from the response that was applied last for every record."""
        records: dict[str, Record] = {}
        read = unreadable = 0
        async with Reconcile.begin(store, [dataset]) as work:
            async with store.connection() as conn:
                async for response in iter_applied(conn, dataset.name, "records"):
                    read += 1
                    if on_progress is not None:
                        await on_progress(read)
                    assert response.key is not None
                    if response.status != 200:
                        continue
                    try:
                        body = self.parse(response.key, response.content or b"")
                        records[response.key] = record_of(response.key, body)
                    except Exception:  # noqa: BLE001 - a parser may fail in any way
                        unreadable += 1
            if not read:
                raise nothing_stored(dataset)
            result = await rebuild_from(work, dataset, records, run=run, approving=approving)
        return RebuildSummary(read, unreadable, result)

    def upstream_for(self, dataset: Dataset, settings: Settings) -> Upstream:
        """Return the upstream of the records, with its limits."""
        return upstream_of(self.upstream, dataset, settings)

    async def _run(self, dataset: Dataset, context: RunContext) -> Outcome:
        settings = context.settings
        if keys := list(self.keys(settings)):
            await add_keys(context.store, dataset, keys)
        options = ClientOptions("Hasat", dict(self.headers(settings)))
        limits = self.upstream_for(dataset, settings)
        async with (
            Client(options) as client,
            Budget(context.store, limits, waiting=context.waiting) as budget,
        ):
            base_url = self.base_url if isinstance(self.base_url, str) else self.base_url(settings)
            fetcher = Fetcher(
                context.store,
                budget,
                client,
                limits.name,
                base_url.rstrip("/"),
                self.classify,
                self.remaining,
                waiting=context.waiting,
            )
            return await _Refresh(self, dataset, context, fetcher).run()


class _Refresh:
    """One run: the due keys, what became of them, and why it ended."""

    def __init__(
        self, strategy: PerKey, dataset: Dataset, context: RunContext, fetcher: Fetcher
    ) -> None:
        self._strategy = strategy
        self._dataset = dataset
        self._context = context
        self._fetcher = fetcher
        self._changed = 0
        self._outcomes: dict[str, int] = {}
        self._end: OutOfQuotaError | None = None

    async def run(self) -> Outcome:
        strategy, context = self._strategy, self._context
        due: list[str] = []
        if context.approving is None:
            due = await due_keys(
                context.store, self._dataset, strategy.max_age, strategy.max_requests
            )
        await self._request_all(due)
        await expire_responses(
            context.store, context.settings, self._dataset.name, strategy.raw_retention_days
        )
        self._changed += await self._remove_absent()
        if self._end is not None:
            return Outcome("out_of_quota", self._changed, self._outcomes, self._end.message)
        is_idle = not due and not self._changed
        return Outcome("nothing" if is_idle else "done", self._changed, self._outcomes)

    async def _request_all(self, due: list[str]) -> None:
        failures = 0
        for number, key in enumerate(due):
            await self._context.progress(number, len(due), key)
            try:
                result = await self._fetch(key)
            except OutOfQuotaError as error:
                self._end = error
                return
            except UnavailableError:
                # Noted as an attempt, so that one key cannot block the others for ever.
                await self._note(key, RequestOutcome.TRANSIENT)
                failures += 1
                if failures == _MAX_FAILURES:
                    raise
                continue
            failures = 0
            await self._receive(key, result)
        await self._context.progress(len(due), len(due))

    async def _fetch(self, key: str) -> FetchResult:
        path = self._path(key)
        before = self._fetcher.sent
        try:
            return await self._fetcher.fetch(
                Request(path, timeout=self._strategy.timeout_seconds),
                RequestContext(self._strategy.lane, self._context.job.name, self._context.run_id),
            )
        finally:
            self._context.count_requests(self._fetcher.sent - before)

    def _path(self, key: str) -> str:
        quoted = quote(key, safe="")
        if key in (".", ".."):
            # Clients resolve these as folders, which would be another path of the upstream.
            quoted = quoted.replace(".", "%2E")
        return self._strategy.path.replace("{key}", quoted)

    async def _receive(self, key: str, result: FetchResult) -> None:
        """Store a response, then what it means for the record."""
        outcome = result.verdict.outcome
        response = result.response
        if response is None:
            await self._note(key, outcome)
            return
        dataset, run = self._dataset, self._context.run_id
        path = self._path(key)
        raw = RawRequest(dataset.source, dataset.name, path, key, response.status, response.headers)
        async with self._context.store.connection() as conn:
            number = await store_body(conn, raw, response.body, run=run)
            if outcome is not RequestOutcome.OK:
                await note_attempt(conn, dataset, key, outcome)
        if outcome is not RequestOutcome.OK:
            self._count(outcome)
            return
        try:
            record = record_of(key, self._strategy.parse(key, response.body))
        except Exception as error:  # noqa: BLE001 - what an upstream sends may fail in any way
            reason = f"{type(error).__name__}: {error}"
            async with self._context.store.connection() as conn:
                unreadable = QuarantinedRecord(path, reason, response.body, key)
                await quarantine(conn, dataset.source, run, [unreadable])
                await note_attempt(conn, dataset, key, RequestOutcome.BROKEN)
            self._count(RequestOutcome.BROKEN)
            return
        await self._commit(record, number)

    async def _commit(self, record: Record, number: int) -> None:
        dataset, key = self._dataset, record.key
        async with Reconcile.begin(self._context.store, [dataset]) as work:
            await work.stage(dataset, [record])
            scope = Scope({"key": key}, sql.SQL("m.key = %(scope_key)s"), {"scope_key": key})
            counts = await work.diff(dataset, scope)
            await mark_applied(work.connection, number)
            await note_attempt(work.connection, dataset, key, RequestOutcome.OK)
            if counts.total:
                await work.write(
                    run=self._context.run_id,
                    retention_days=dataset.retention_days,
                )
        self._changed += counts.total
        self._count(RequestOutcome.OK)

    async def _remove_absent(self) -> int:
        """Remove the records that the upstream no longer has, unless they are suspiciously many."""
        dataset = self._dataset
        async with Reconcile.begin(self._context.store, [dataset]) as work:
            query = sql.SQL(load_query("hasat.strategies", "absent_records"))
            cursor = await work.connection.execute(
                query.format(table=dataset.table), {"dataset": dataset.name}
            )
            keys = [key for (key,) in await cursor.fetchall()]
            if (approving := self._context.approving) is not None:
                # Those that came back since stay, and those that are missing since wait.
                async with self._context.inputs() as files:
                    held = set(json.loads(files[_INPUT].read_bytes()))
                keys = [key for key in keys if key in held]
            if not keys and approving is None:
                return 0
            await work.stage(dataset, [])
            absent = sql.SQL("m.key = ANY (%(scope_keys)s)")
            counts = await work.diff(dataset, Scope(_ABSENT, absent, {"scope_keys": keys}))
            await check_guard(
                work,
                [dataset],
                measure_removals(
                    dataset.name,
                    counts.removed,
                    counts.records,
                    dataset.guard,
                    unguarded=_UNGUARDED_REMOVALS,
                ),
                approving=approving,
                detail={"outcomes": self._outcomes},
                inputs={_INPUT: json.dumps(keys).encode()},
            )
            await mark_newest_applied(work.connection, dataset.name, keys)
            await work.write(
                run=self._context.run_id,
                retention_days=dataset.retention_days,
                approving=approving,
            )
        return counts.total

    async def _note(self, key: str, outcome: RequestOutcome) -> None:
        async with self._context.store.connection() as conn:
            await note_attempt(conn, self._dataset, key, outcome)
        self._count(outcome)

    def _count(self, outcome: RequestOutcome) -> None:
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
