"""The tools of the platform: jobs, runs, quotas, datasets and their changes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from pydantic import BaseModel, Field

from hasat.api.routes.jobs import JobSummary, RunSummary
from hasat.api.routes.quota import QuotaResponse
from hasat.errors import NotFoundError
from hasat.feed.changes import changes_after, head_of, history
from hasat.feed.cursor import Cursor
from hasat.http.routes import StorableText
from hasat.jobs.queue import queue_run, stop_run
from hasat.jobs.runs import list_runs, schedule_overview
from hasat.messages import msg
from hasat.sources.registry import Source, Tool, ToolContext
from hasat.sources.tools import Limit, RunId, ToolResponse, operating_tool, tools
from hasat.sources.upstreams import read_all_quotas
from hasat.store.queries import load_query


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
            self.get_record_history,
        )
        return (
            *reading,
            operating_tool(self.run_job, "run.queue"),
            operating_tool(self.stop_run, "run.stop"),
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

    async def get_rate_limit_status(self, upstream: StorableText = "football") -> RateLimits:
        """The remaining requests of an upstream by day and minute, its spenders and a forecast."""
        store = self._context.store
        quotas = {
            one.windows.upstream: one
            for one in await read_all_quotas(store, self._context.settings)
        }
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

    async def get_record_history(self, dataset: StorableText, key: StorableText) -> Changes:
        """The stored changes of one record of a dataset, oldest first."""
        self._check(dataset)
        self._datasets[dataset].check_keys([key])
        async with self._context.store.connection() as conn:
            head = await head_of(conn, dataset)
            found = await history(conn, dataset, key)
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


def _change(change: Any) -> ChangeItem:
    names = ("seq", "kind", "key", "changed_at", "fields", "body", "before")
    return ChangeItem(**{name: getattr(change, name) for name in names})
