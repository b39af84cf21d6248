"""/api/v1/jobs and /api/v1/runs, and the models of jobs and runs that other views share."""

from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hasat.errors import AlreadyRunningError, HasatError, NotFoundError, UsageError
from hasat.http.routes import (
    CamelModel,
    StorableText,
    StoreDep,
    audited,
    declare_problems,
    declare_responses,
)
from hasat.jobs import Job
from hasat.jobs.catalogue import param_types
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import ScheduledJob, get_run, list_runs, schedule_overview
from hasat.settings.reference import describe_type, plain
from hasat.store.audit import MAX_TEXT, describe_action
from hasat.text import MAX_EXACT_INTEGER

router = APIRouter(tags=["operation"])

Name = Annotated[StorableText, Path(max_length=100, description="The job's name.")]
Number = Annotated[int, Path(ge=1, le=MAX_EXACT_INTEGER, description="The run's number.")]

_MaskedParams = Annotated[dict[str, Any], AfterValidator(plain)]
"""Parameters without credentials and query values of addresses: any key may read runs."""


class RunSummary(BaseModel):
    """How a run was started and how it ended; the part that all views have."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    trigger: Literal["schedule", "hand", "retry"]
    state: Literal["queued", "running", "finished"]
    outcome: str | None
    started_at: datetime | None
    finished_at: datetime | None
    requests: int
    rows_changed: int
    message: str | None


class JobSummary(BaseModel):
    """A job and when it is next due; the part that all views have."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    summary: str
    source: str | None
    enabled: bool
    cron: str | None
    zone: str | None
    next_due: datetime | None

    @classmethod
    def of(cls, entry: ScheduledJob, **more: Any) -> Self:
        """Return the model of a scheduled job; `more` has the fields that only this view has."""
        values = {name: getattr(entry.job, name) for name in cls.model_fields.keys() & _JOB_FIELDS}
        schedule = {"next_due": entry.next_due, "last_run": entry.last_run}
        return cls.model_validate({**values, **schedule, **more})


_JOB_FIELDS = frozenset({field.name for field in fields(Job)})


class RunResponse(CamelModel, RunSummary):
    """One run of a job."""

    job: str
    params: _MaskedParams
    scheduled_for: datetime | None
    queued_at: datetime
    attempt: int
    worker: str | None
    detail: dict[str, Any]
    progress: dict[str, Any] | None


class RunsResponse(CamelModel):
    runs: list[RunResponse]


class Parameter(CamelModel):
    """A parameter that a run can be given."""

    name: str
    takes: str = Field(description="Its type and range, in words.")
    default: Annotated[Any, AfterValidator(plain)] = None


class JobResponse(CamelModel, JobSummary):
    """A job with its parameters and its last run."""

    overlap: Literal["skip", "queue"] = Field(
        description="Whether a second run is refused or queued while one is open."
    )
    parameters: list[Parameter]
    last_run: RunResponse | None


class JobsResponse(CamelModel):
    jobs: list[JobResponse]


class NewRun(BaseModel):
    """A run to queue."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, Any] = Field(
        default_factory=dict,
        description="Parameters that override the job's defaults; GET /api/v1/jobs lists them.",
        examples=[{"only_league_id": 39}],
    )
    reason: StorableText | None = Field(
        default=None, max_length=MAX_TEXT, description="Why, for the audit record."
    )


RUN = {
    "id": 17,
    "job": "daily_standings",
    "params": {"at_once": False, "only_league_id": 39},
    "trigger": "hand",
    "state": "queued",
    "outcome": None,
    "scheduledFor": None,
    "queuedAt": "2026-11-02T06:04:11.000214Z",
    "startedAt": None,
    "finishedAt": None,
    "attempt": 0,
    "worker": None,
    "requests": 0,
    "rowsChanged": 0,
    "message": None,
    "detail": {},
    "progress": None,
}
_JOB = {
    "name": "rates_sync",
    "summary": "Updates the rates of the day.",
    "source": "rates",
    "enabled": True,
    "cron": "10 */2 * * *",
    "zone": "Europe/Istanbul",
    "overlap": "skip",
    "parameters": [{"name": "at_once", "takes": "true or false", "default": False}],
    "nextDue": "2026-11-02T05:10:00Z",
    "lastRun": RUN,
}


def queued_responses(*errors: type[HasatError]) -> dict[int | str, dict[str, Any]]:
    """Declare the responses of a route that queues a run."""
    queued = {
        "description": "Queued; `Location` is the run.",
        "content": {"application/json": {"example": RUN}},
        "headers": {"Location": {"schema": {"type": "string"}}},
    }
    return {202: queued, **declare_problems(*errors)}


@router.get("/jobs", summary="Jobs", responses=declare_responses({"jobs": [_JOB]}))
async def jobs(request: Request, store: StoreDep) -> JobsResponse:
    """Every job with its parameters, its next due time and its last run."""
    overview = await schedule_overview(store, request.app.state.catalogue)
    return JobsResponse(jobs=[_job_response(entry) for entry in overview])


@router.post(
    "/jobs/{name}/runs",
    status_code=202,
    summary="Queue a run for the next free worker",
    dependencies=[audited("run.queue")],
    responses=queued_responses(UsageError, NotFoundError, AlreadyRunningError),
)
async def queue(
    name: Name, request: Request, response: Response, store: StoreDep, new: NewRun | None = None
) -> RunResponse:
    """Responds with 409 if a run is open and the job does not queue a second one."""
    describe_action(reason=new.reason if new else None)
    run = await queue_run(
        store,
        request.app.state.catalogue,
        name,
        new.params if new else {},
        behind_others=False,
    )
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return RunResponse.model_validate(run)


@router.get("/runs", summary="Runs, newest first", responses=declare_responses({"runs": [RUN]}))
async def runs(
    store: StoreDep,
    job: Annotated[StorableText | None, Query(max_length=100, description="Only this job.")] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Only queued and running ones.")
    ] = False,
    failed: Annotated[bool, Query(description="Only failed ones.")] = False,
    before: Annotated[
        int | None, Query(ge=1, le=MAX_EXACT_INTEGER, description="Only older ones.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number.")] = 50,
) -> RunsResponse:
    """`before` continues after the last run of a page."""
    found = await list_runs(
        store, job=job, bad=failed, unfinished=open_only, before=before, limit=limit
    )
    return RunsResponse(runs=[RunResponse.model_validate(run) for run in found])


@router.get("/runs/{number}", summary="One run", responses=declare_responses(RUN, NotFoundError))
async def run(number: Number, store: StoreDep) -> RunResponse:
    """With its progress while it is running, and its outcome."""
    return RunResponse.model_validate(await get_run(store, number))


def _job_response(entry: ScheduledJob) -> JobResponse:
    job = entry.job
    parameters = [
        Parameter(name=name, takes=describe_type(kind), default=job.params.get(name))
        for name, kind in sorted(param_types(job).items())
    ]
    return JobResponse.of(entry, parameters=parameters)
