"""Tools about the house itself: jobs, runs, quotas, datasets and what changed in them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from pydantic import BaseModel, ConfigDict, Field

from hasat.api.routes.quota import QuotaAnswer
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


class RunTold(BaseModel):
    """One run of a job."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    job: str
    trigger: str
    state: str
    outcome: str | None
    scheduled_for: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    requests: int
    rows_changed: int
    message: str | None
    error: str | None


class JobTold(BaseModel):
    """A job, when it is next due and how its last runs went."""

    name: str
    summary: str
    source: str | None
    enabled: bool
    cron: str | None
    zone: str | None
    lane: str
    next_due: datetime | None
    last_run: RunTold | None


class Jobs(ToolResponse):
    items: list[JobTold]
    recent_runs: list[RunTold] = Field(description="Of the job that was named, newest first.")


class Runs(ToolResponse):
    items: list[RunTold]


class RateLimits(ToolResponse):
    """What is left at an upstream; null where it has no such window."""

    upstream: str
    daily_limit: int | None
    daily_remaining: int | None
    daily_spent: int
    minute_limit: int | None
    minute_remaining: int | None
    day_ends_at: datetime
    exhausted_at: datetime | None
    forecast: str | None
    quota: QuotaAnswer = Field(description="Every window, lane and spender.")


class DatasetTold(BaseModel):
    """A dataset, how many records it has and where its feed stands."""

    dataset: str
    source: str
    records: int
    changes: int
    committed_at: datetime | None


class TableTold(BaseModel):
    """A table and about how many rows it has; the estimate is PostgreSQL's own."""

    table: str
    rows_estimated: int
    bytes: int


class DatabaseStats(ToolResponse):
    database_bytes: int
    server_version: str
    embedded: bool
    datasets: list[DatasetTold]
    tables: list[TableTold]


class ChangeTold(BaseModel):
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
    items: list[ChangeTold]


class PlatformTools:
    """The tools of the platform."""

    def __init__(self, shop: ToolContext, sources: Sequence[Source]) -> None:
        self._shop = shop
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
        """How a job is: when it is next due, how its last runs went. Without a name, all jobs."""
        store, catalogue = self._shop.store, self._shop.catalogue
        if job_name is not None:
            catalogue.get(job_name)
        overview = await schedule_overview(store, catalogue)
        items = [
            JobTold(
                **{name: getattr(one.job, name) for name in _OF_A_JOB},
                next_due=one.next_due,
                last_run=RunTold.model_validate(one.last_run) if one.last_run else None,
            )
            for one in overview
            if job_name in (None, one.job.name)
        ]
        recent = await list_runs(store, job=job_name, limit=10) if job_name is not None else []
        return Jobs(ts_utc=await store.now(), items=items, recent_runs=_told(recent))

    async def list_job_runs(
        self, job_name: StorableText | None = None, only_bad: bool = False, limit: Limit = 20
    ) -> Runs:
        """Runs of one job or of all, newest first; with only_bad those that went wrong."""
        store = self._shop.store
        found = await list_runs(store, job=job_name, bad=only_bad, limit=limit)
        return Runs(ts_utc=await store.now(), items=_told(found))

    async def get_rate_limit_status(self, upstream: StorableText = "football") -> RateLimits:
        """What is left of an upstream's day and minute, who spent it, and what it will come to."""
        store = self._shop.store
        quotas = {
            one.windows.upstream: one for one in await read_all_quotas(store, self._shop.settings)
        }
        if upstream not in quotas:
            raise NotFoundError(
                msg("There is no upstream named {upstream!r}.", upstream=upstream),
                remedy=msg("There are: {quotas}.", quotas=", ".join(sorted(quotas))),
            )
        quota = quotas[upstream]
        w = quota.windows
        minute_limit = _least(w.minute_limit, w.minute_plan)
        return RateLimits(
            ts_utc=w.now,
            upstream=upstream,
            daily_limit=_least(w.day_limit, w.plan),
            daily_remaining=w.remaining,
            daily_spent=w.spent,
            minute_limit=minute_limit,
            minute_remaining=None if minute_limit is None else max(0, minute_limit - w.last_minute),
            day_ends_at=w.ends_at,
            exhausted_at=w.exhausted_at,
            forecast=quota.forecast.sentence if quota.forecast else None,
            quota=QuotaAnswer.model_validate(quota, from_attributes=True),
        )

    async def get_database_stats(self) -> DatabaseStats:
        """How full the database is: every dataset's records and feed, and the largest tables."""
        store = self._shop.store
        async with store.connection() as conn:
            async with conn.cursor(row_factory=class_row(DatasetTold)) as cursor:
                await cursor.execute(
                    "SELECT dataset, source, records, seq AS changes, committed_at"
                    " FROM feed.head ORDER BY source, dataset"
                )
                datasets = await cursor.fetchall()
            async with conn.cursor(row_factory=class_row(TableTold)) as cursor:
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
        async with self._shop.store.connection() as conn:
            head = await head_of(conn, dataset)
            after = max(head.floor, head.seq - limit)
            page = await changes_after(
                conn, dataset, Cursor(dataset, head.epoch, after), limit=limit
            )
        items = [_change(change) for change in page.changes]
        return Changes(
            ts_utc=await self._shop.store.now(), dataset=dataset, head=page.head, items=items
        )

    async def get_record_history(self, dataset: StorableText, key: StorableText) -> Changes:
        """Everything still known of one record of a dataset, oldest first."""
        self._check(dataset)
        self._datasets[dataset].check_keys([key])
        async with self._shop.store.connection() as conn:
            head = await head_of(conn, dataset)
            found = await history(conn, dataset, key)
        items = [_change(change) for change in found]
        return Changes(
            ts_utc=await self._shop.store.now(), dataset=dataset, head=head.seq, items=items
        )

    async def run_job(self, job_name: StorableText, params: dict[str, Any] | None = None) -> Runs:
        """Queue a run of a job for the next free worker; `params` are added to the job's own."""
        shop = self._shop
        run = await queue_run(shop.store, shop.catalogue, job_name, params, behind_others=False)
        return Runs(ts_utc=await shop.store.now(), items=_told([run]))

    async def stop_run(self, run_id: RunId) -> Runs:
        """Stop a run: one that waits at once, one that works within seconds. It is not undone."""
        run = await stop_run(self._shop.store, run_id)
        return Runs(ts_utc=await self._shop.store.now(), items=_told([run]))

    def _check(self, dataset: str) -> None:
        if dataset not in self._datasets:
            raise NotFoundError(
                msg("There is no dataset named {dataset!r}.", dataset=dataset),
                remedy=msg("There are: {datasets}.", datasets=", ".join(sorted(self._datasets))),
            )


_OF_A_JOB = ("name", "summary", "source", "enabled", "cron", "zone", "lane")


def _least(*limits: int | None) -> int | None:
    """The limit that rules: what was configured, or what the upstream said."""
    return min((limit for limit in limits if limit is not None), default=None)


def _told(runs: Sequence[Any]) -> list[RunTold]:
    return [RunTold.model_validate(run) for run in runs]


def _change(change: Any) -> ChangeTold:
    names = ("seq", "kind", "key", "changed_at", "fields", "body", "before")
    return ChangeTold(**{name: getattr(change, name) for name in names})
