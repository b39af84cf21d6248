"""/api/v1/status: database, sources and jobs, with the fields of the original .NET service."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from hasat import __version__
from hasat.api.health import SourcesDep, source_report
from hasat.api.routes.jobs import JobSummary, RunSummary
from hasat.errors import DatabaseError
from hasat.http.routes import CamelModel, SettingsDep, StoreDep, declare_responses
from hasat.jobs.runs import schedule_overview
from hasat.store import Store

router = APIRouter(tags=["operation"])


class OriginalStatus(CamelModel):
    """The fields of the original .NET service; null until a source reports them."""

    last_sync_at: datetime | None = None
    e_invoice_user_count: int | None = None
    e_despatch_user_count: int | None = None
    last_sync_duration: str | None = None
    last_sync_status: str | None = Field(None, description="success, partial or failed.")
    last_sync_error: str | None = None
    last_attempt_at: datetime | None = None
    last_failure_at: datetime | None = None


class Database(CamelModel):
    version: str
    embedded: bool = Field(description="Whether Hasat runs the PostgreSQL server.")


class SourceStatus(CamelModel):
    model_config = ConfigDict(extra="allow")

    name: str
    title: str


class LastRun(CamelModel, RunSummary):
    queued_at: datetime


class JobStatus(CamelModel, JobSummary):
    last_run: LastRun | None


class Status(OriginalStatus):
    name: str
    version: str
    database: Database
    sources: list[SourceStatus]
    jobs: list[JobStatus]


_EXAMPLE = {
    "lastSyncAt": "2026-11-02T06:04:11.000214Z",
    "eInvoiceUserCount": 1_048_576,
    "eDespatchUserCount": 262_144,
    "lastSyncDuration": "00:03:42",
    "lastSyncStatus": "success",
    "lastAttemptAt": "2026-11-02T06:00:00Z",
    "name": "Hasat",
    "version": __version__,
    "database": {"version": "18.1", "embedded": True},
    "sources": [{"name": "rates", "title": "Exchange rates"}],
    "jobs": [
        {
            "name": "housekeeping",
            "summary": "Deletes expired runs and quarantined records; cleans up the queue.",
            "enabled": True,
            "cron": "15 4 * * *",
            "zone": "Europe/Istanbul",
            "nextDue": "2026-11-03T01:15:00Z",
        }
    ],
}


@router.get("/status", summary="Status", responses=declare_responses(_EXAMPLE, DatabaseError))
async def status(
    request: Request, store: StoreDep, settings: SettingsDep, sources: SourcesDep
) -> Status:
    """The database, the sources, and the jobs with their next due time and last run."""
    reports = [(source, await source_report(source, store, settings)) for source in sources]
    original: dict[str, Any] = {}
    for _, report in reports:
        original |= {name: report[name] for name in _ORIGINAL_NAMES if name in report}
    return Status(
        name="Hasat",
        version=__version__,
        database=Database(version=await _server_version(store), embedded=store.embedded),
        sources=[
            SourceStatus.model_validate({**report, "name": source.name, "title": source.title})
            for source, report in reports
        ],
        jobs=[
            JobStatus.of(entry)
            for entry in await schedule_overview(store, request.app.state.catalogue)
        ],
        **original,
    )


_ORIGINAL_NAMES = [to_camel(name) for name in OriginalStatus.model_fields]


async def _server_version(store: Store) -> str:
    async with store.connection() as conn:
        row = await (await conn.execute("SHOW server_version")).fetchone()
    assert row is not None
    return str(row[0]).split()[0]
