"""The tools of the platform: jobs, runs, holds, quotas, datasets and their changes."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from pydantic import BaseModel, ConfigDict, Field

from hasat.api.routes.jobs import JobSummary, RunSummary
from hasat.api.routes.quota import QuotaResponse
from hasat.clock import parse_local_time
from hasat.errors import NotFoundError, UsageError
from hasat.feed.changes import changes_after, head_of, history, record_as_of
from hasat.feed.cursor import Cursor
from hasat.feed.holds import get_hold, list_holds, reject_hold
from hasat.feed.records import Place, Row, find_record, list_records, parse_selection
from hasat.http.routes import StorableText
from hasat.jobs.approvals import queue_approval
from hasat.jobs.queue import queue_run, stop_run
from hasat.jobs.runs import list_runs, schedule_overview
from hasat.messages import msg
from hasat.source import Source, Tool, ToolContext
from hasat.store.audit import describe_action
from hasat.store.queries import load_query
from hasat.tools import Limit, Reason, RunId, ToolResponse, operating_tool, tools
from hasat.upstreams import read_all_quotas


class RunItem(RunSummary):
    """One run of a job."""

    job: str
    scheduled_for: datetime | None
    error: str | None


class JobItem(JobSummary):
    """A job with its last run."""

    lane: str
    last_run: RunItem | None


class Jobs(ToolResponse):
    items: list[JobItem]
    recent_runs: list[RunItem] = Field(description="Runs of the named job, newest first.")


class Runs(ToolResponse):
    items: list[RunItem]


class RateLimits(ToolResponse):
    """The remaining quota of an upstream; null where it has no such window."""

    upstream: str
    daily_limit: int | None
    daily_remaining: int | None
    daily_spent: int
    minute_limit: int | None
    minute_remaining: int | None
    day_ends_at: datetime
    exhausted_at: datetime | None
    forecast: str | None
    quota: QuotaResponse = Field(description="Every window, lane and spender.")


class DatasetItem(BaseModel):
    """A dataset with its number of records and changes."""

    dataset: str
    source: str
    records: int
    changes: int
    committed_at: datetime | None


class TableItem(BaseModel):
    """A table with its size; PostgreSQL estimates the number of rows."""

    table: str
    rows_estimated: int
    bytes: int


class DatabaseStats(ToolResponse):
    database_bytes: int
    server_version: str
    embedded: bool
    datasets: list[DatasetItem]
    tables: list[TableItem]


class ChangeItem(BaseModel):
    """One change of a record."""

    seq: int
    kind: str
    key: str
    changed_at: datetime
    fields: list[str] = Field(description="The top-level fields that a modification changed.")
    body: Any
    before: Any


class Changes(ToolResponse):
    dataset: str
    head: int
    items: list[ChangeItem]


class RecordItem(BaseModel):
    """A record of a dataset; times are null for a past state."""

    key: str
    body: Any
    first_seen_at: datetime | None = None
    changed_at: datetime | None = None


class Records(ToolResponse):
    dataset: str
    items: list[RecordItem]
    next: str | None = Field(default=None, description="The cursor of the next page.")


class HoldItem(BaseModel):
    """A run that the guard held, with its measures and the changes it would make."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    job: str
    source: str | None
    datasets: list[str]
    state: str
    at: datetime
    runs: list[int] = Field(description="All runs with this finding; the first is the id.")
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None
    machine: str | None = Field(description="The only machine that has the stored input.")
    preview: dict[str, Any]


class Holds(ToolResponse):
    items: list[HoldItem]


class Decision(ToolResponse):
    run_id: int
    state: str
    queued_run: int | None = Field(
        default=None, description="The run that applies the approved input."
    )
    message: str | None = Field(
        default=None,
        description="The machine whose worker must run it, if only that one has the input.",
    )


class PlatformTools:
    """The tools of the platform."""

    def __init__(self, context: ToolContext, sources: Sequence[Source]) -> None:
        self._context = context
        self._datasets = {one.name: one for source in sources for one in source.datasets}

    def all(self) -> tuple[Tool, ...]:
        reading = tools(
            self.get_job_status,
            self.list_job_runs,
            self.get_rate_limit_status,
            self.get_database_stats,
            self.get_recent_changes,
            self.list_records,
            self.get_record,
            self.get_record_history,
            self.list_holds,
            self.show_hold,
        )
        return (
            *reading,
            operating_tool(self.run_job, "run.queue"),
            operating_tool(self.stop_run, "run.stop"),
            operating_tool(self.approve_hold, "hold.approve"),
            operating_tool(self.reject_hold, "hold.reject"),
        )

    async def get_job_status(self, job_name: StorableText | None = None) -> Jobs:
        """The status of a job: its next due time and its last runs. Without a name, all jobs."""
        store, catalogue = self._context.store, self._context.catalogue
        if job_name is not None:
            catalogue.get(job_name)
        overview = await schedule_overview(store, catalogue)
        items = [JobItem.of(entry) for entry in overview if job_name in (None, entry.job.name)]
        recent = await list_runs(store, job=job_name, limit=10) if job_name is not None else []
        return Jobs(ts_utc=await store.now(), items=items, recent_runs=_run_items(recent))

    async def list_job_runs(
        self, job_name: StorableText | None = None, only_bad: bool = False, limit: Limit = 20
    ) -> Runs:
        """Runs of one job or of all, newest first; with only_bad, only failed ones."""
        store = self._context.store
        found = await list_runs(store, job=job_name, bad=only_bad, limit=limit)
        return Runs(ts_utc=await store.now(), items=_run_items(found))

    async def get_rate_limit_status(self, upstream: StorableText | None = None) -> RateLimits:
        """The remaining requests of an upstream by day and minute, its spenders and a forecast.

        Without an upstream, those of the first one.
        """
        store = self._context.store
        quotas = {
            one.windows.upstream: one
            for one in await read_all_quotas(store, self._context.settings)
        }
        upstream = upstream or next(iter(quotas), "")
        if upstream not in quotas:
            raise NotFoundError(
                msg("There is no upstream {upstream!r}.", upstream=upstream),
                remedy=msg("Known upstreams: {quotas}.", quotas=", ".join(sorted(quotas))),
            )
        quota = quotas[upstream]
        w = quota.windows
        minute_limit = _smallest(w.minute_limit, w.minute_plan)
        return RateLimits(
            ts_utc=w.now,
            upstream=upstream,
            daily_limit=_smallest(w.day_limit, w.plan),
            daily_remaining=w.remaining,
            daily_spent=w.spent,
            minute_limit=minute_limit,
            minute_remaining=None if minute_limit is None else max(0, minute_limit - w.last_minute),
            day_ends_at=w.ends_at,
            exhausted_at=w.exhausted_at,
            forecast=quota.forecast.sentence if quota.forecast else None,
            quota=QuotaResponse.model_validate(quota, from_attributes=True),
        )

    async def get_database_stats(self) -> DatabaseStats:
        """Size of the database, records and changes of each dataset, largest tables."""
        store = self._context.store
        async with store.connection() as conn:
            async with conn.cursor(row_factory=class_row(DatasetItem)) as cursor:
                await cursor.execute(
                    "SELECT dataset, source, records, seq AS changes, committed_at"
                    " FROM feed.head ORDER BY source, dataset"
                )
                datasets = await cursor.fetchall()
            async with conn.cursor(row_factory=class_row(TableItem)) as cursor:
                await cursor.execute(load_query("hasat.mcp", "list_largest_tables"))
                tables = await cursor.fetchall()
            found = await conn.execute(
                "SELECT pg_database_size(current_database()), current_setting('server_version')"
            )
            row = await found.fetchone()
        assert row is not None
        return DatabaseStats(
            ts_utc=await store.now(),
            database_bytes=row[0],
            server_version=row[1].split()[0],
            embedded=store.embedded,
            datasets=datasets,
            tables=tables,
        )

    async def get_recent_changes(self, dataset: StorableText, limit: Limit = 20) -> Changes:
        """The newest changes of a dataset, oldest of them first: added, modified, removed."""
        self._check(dataset)
        async with self._context.store.connection() as conn:
            head = await head_of(conn, dataset)
            after = max(head.floor, head.seq - limit)
            page = await changes_after(
                conn, dataset, Cursor(dataset, head.epoch, after), limit=limit
            )
        items = [_change(change) for change in page.changes]
        return Changes(
            ts_utc=await self._context.store.now(), dataset=dataset, head=page.head, items=items
        )

    async def list_records(
        self,
        dataset: StorableText,
        filters: dict[str, str] | None = None,
        sort: StorableText | None = None,
        after: StorableText | None = None,
        limit: Limit = 20,
    ) -> Records:
        """Records of a dataset. `filters` are by column: {"column": "value"}, also with .gte, .lte
        and .prefix after the name; `sort` is a column, or -column from the last. A wrong name is
        answered with the supported ones."""
        self._check(dataset)
        declared = self._datasets[dataset]
        if not declared.listed:
            raise UsageError(
                msg("The records of {dataset} are not listed.", dataset=dataset),
                remedy=msg("Use the search of its source, or look a record up by its key."),
            )
        selection = parse_selection(declared, filters or {}, sort)
        place = None if after is None else Place.parse(after, declared, selection)
        async with self._context.store.snapshot() as conn:
            await head_of(conn, dataset)
            rows = await list_records(conn, declared, selection, limit=limit + 1, after=place)
        more, rows = len(rows) > limit, rows[:limit]
        return Records(
            ts_utc=await self._context.store.now(),
            dataset=dataset,
            items=[_record(row) for row in rows],
            next=Place(rows[-1].position, rows[-1].key).cursor(declared, selection)
            if more
            else None,
        )

    async def get_record(
        self, dataset: StorableText, key: StorableText, as_of: StorableText | None = None
    ) -> Records:
        """One record of a dataset by its key; with `as_of`, its state at that time. Without such a
        record, no items."""
        self._check(dataset)
        declared = self._datasets[dataset]
        declared.check_keys([key])
        async with self._context.store.snapshot() as conn:
            await head_of(conn, dataset)
            if as_of is None:
                row = await find_record(conn, declared, key)
                items = [] if row is None else [_record(row)]
            else:
                past = await record_as_of(conn, declared, key, parse_local_time(as_of))
                items = [] if past.body is None else [RecordItem(key=key, body=past.body)]
        return Records(ts_utc=await self._context.store.now(), dataset=dataset, items=items)

    async def get_record_history(self, dataset: StorableText, key: StorableText) -> Changes:
        """The stored changes of one record of a dataset, oldest first."""
        self._check(dataset)
        self._datasets[dataset].check_keys([key])
        async with self._context.store.connection() as conn:
            head = await head_of(conn, dataset)
            found = await history(conn, self._datasets[dataset], key)
        items = [_change(change) for change in found]
        return Changes(
            ts_utc=await self._context.store.now(), dataset=dataset, head=head.seq, items=items
        )

    async def run_job(self, job_name: StorableText, params: dict[str, Any] | None = None) -> Runs:
        """Queue a run of a job for the next free worker; `params` override the job's defaults."""
        store, catalogue = self._context.store, self._context.catalogue
        run = await queue_run(store, catalogue, job_name, params, behind_others=False)
        return Runs(ts_utc=await store.now(), items=_run_items([run]))

    async def stop_run(self, run_id: RunId) -> Runs:
        """Stop a run: a queued one at once, a running one within seconds. This cannot be undone."""
        run = await stop_run(self._context.store, run_id)
        return Runs(ts_utc=await self._context.store.now(), items=_run_items([run]))

    async def list_holds(self, waiting: bool = True, limit: Limit = 20) -> Holds:
        """Runs that the guard holds until they are approved or rejected; or all, newest first."""
        store = self._context.store
        found = await list_holds(store, state="waiting" if waiting else None, limit=limit)
        items = [HoldItem.model_validate(one) for one in found]
        return Holds(ts_utc=await store.now(), items=items)

    async def show_hold(self, run_id: RunId) -> Holds:
        """One held run: the measures of the guard, and the changes it would make."""
        store = self._context.store
        found = HoldItem.model_validate(await get_hold(store, run_id))
        return Holds(ts_utc=await store.now(), items=[found])

    async def approve_hold(self, run_id: RunId, reason: Reason = None) -> Decision:
        """Approve a held run: apply its input exactly as it was."""
        describe_action(reason=reason)
        run = await queue_approval(self._context.store, self._context.catalogue, run_id)
        return Decision(
            ts_utc=await self._context.store.now(),
            run_id=run_id,
            state="approved",
            queued_run=run.id,
            message=run.message,
        )

    async def reject_hold(self, run_id: RunId, reason: Reason = None) -> Decision:
        """Reject a held run; it cannot be approved afterwards."""
        describe_action(reason=reason)
        await reject_hold(self._context.store, self._context.settings, run_id)
        return Decision(ts_utc=await self._context.store.now(), run_id=run_id, state="rejected")

    def _check(self, dataset: str) -> None:
        if dataset not in self._datasets:
            raise NotFoundError(
                msg("There is no dataset {dataset!r}.", dataset=dataset),
                remedy=msg(
                    "Known datasets: {datasets}.", datasets=", ".join(sorted(self._datasets))
                ),
            )


def _smallest(*limits: int | None) -> int | None:
    """Return the effective limit: the smaller of the configured and the stated one."""
    return min((limit for limit in limits if limit is not None), default=None)


def _run_items(runs: Sequence[Any]) -> list[RunItem]:
    return [RunItem.model_validate(run) for run in runs]


def _record(row: Row) -> RecordItem:
    return RecordItem(
        key=row.key,
        body=json.loads(row.body),
        first_seen_at=row.first_seen_at,
        changed_at=row.changed_at,
    )


def _change(change: Any) -> ChangeItem:
    names = ("seq", "kind", "key", "changed_at", "fields", "body", "before")
    return ChangeItem(**{name: getattr(change, name) for name in names})
