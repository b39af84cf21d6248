"""Jobs and runs over HTTP: what there is, how it went, and queueing a run for a worker."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from hasat.errors import AlreadyRunningError, NotFoundError, UsageError
from hasat.http.routes import StorableText, StoreDep, audited, declare_responses
from hasat.jobs import Job, Run
from hasat.jobs.catalogue import param_types
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs, schedule_overview
from hasat.settings.reference import describe_type, plain
from hasat.store.audit import MAX_TEXT, describe_action

router = APIRouter(tags=["operation"])

Name = Annotated[StorableText, Path(max_length=100, description="The job's name.")]
Number = Annotated[int, Path(ge=1, le=2**62, description="The run's number.")]

_Shown = Annotated[dict[str, Any], AfterValidator(plain)]
"""Without the credentials and query values of addresses: any key may read runs."""


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, from_attributes=True)


class RunAnswer(_Camel):
    """One run of a job."""

    id: int
    job: str
    params: _Shown
    trigger: Literal["schedule", "hand", "retry"]
    state: Literal["queued", "running", "finished"]
    outcome: str | None
    scheduled_for: datetime | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    worker: str | None
    requests: int
    rows_changed: int
    message: str | None
    detail: dict[str, Any]
    progress: dict[str, Any] | None


class RunsAnswer(_Camel):
    runs: list[RunAnswer]


class Parameter(_Camel):
    """A parameter that a run can be given."""

    name: str
    takes: str = Field(description="Its type and range, in words.")
    default: Annotated[Any, AfterValidator(plain)] = None


class JobAnswer(_Camel):
    """A job, when it is due and how its last run went."""

    name: str
    summary: str
    source: str | None
    enabled: bool
    cron: str | None
    zone: str | None
    overlap: Literal["skip", "queue"] = Field(
        description="Whether a second run is refused while one is open, or waits its turn."
    )
    parameters: list[Parameter]
    next_due: datetime | None
    last_run: RunAnswer | None


class JobsAnswer(_Camel):
    jobs: list[JobAnswer]


class NewRun(BaseModel):
    """A run to queue."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, Any] = Field(
        default_factory=dict,
        description="Parameters beside the job's own; GET /api/v1/jobs lists them.",
        examples=[{"only_league_id": 39}],
    )
    reason: StorableText | None = Field(
        default=None, max_length=MAX_TEXT, description="Why, for the audit record."
    )


_RUN = {
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
    "name": "daily_standings",
    "summary": "Tables of leagues with newly finished matches.",
    "source": "football",
    "enabled": True,
    "cron": "10 */2 * * *",
    "zone": "Europe/Istanbul",
    "overlap": "skip",
    "parameters": [{"name": "at_once", "takes": "true or false", "default": False}],
    "nextDue": "2026-11-02T05:10:00Z",
    "lastRun": _RUN,
}


@router.get("/jobs", summary="Every job", responses=declare_responses({"jobs": [_JOB]}))
async def jobs(request: Request, store: StoreDep) -> JobsAnswer:
    """With its parameters, its next due time and its last run."""
    overview = await schedule_overview(store, request.app.state.catalogue)
    return JobsAnswer(jobs=[_job(entry.job, entry.next_due, entry.last_run) for entry in overview])


@router.post(
    "/jobs/{name}/runs",
    status_code=202,
    summary="Queue a run for the next free worker",
    dependencies=[audited("run.queue")],
    responses={
        202: {
            "description": "Queued; `Location` is the run.",
            "content": {"application/json": {"example": _RUN}},
            "headers": {"Location": {"schema": {"type": "string"}}},
        },
        **{
            status: declared
            for status, declared in declare_responses(
                None, UsageError, NotFoundError, AlreadyRunningError
            ).items()
            if status != 200
        },
    },
)
async def queue(
    name: Name, request: Request, response: Response, store: StoreDep, new: NewRun | None = None
) -> RunAnswer:
    """A job that skips due times while it is busy is not queued a second time (409)."""
    describe_action(reason=new.reason if new else None)
    run = await queue_run(
        store,
        request.app.state.catalogue,
        name,
        new.params if new else {},
        behind_others=False,
    )
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return RunAnswer.model_validate(run)


@router.get("/runs", summary="Runs, newest first", responses=declare_responses({"runs": [_RUN]}))
async def runs(
    store: StoreDep,
    job: Annotated[
        StorableText | None, Query(max_length=100, description="Only of this job.")
    ] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Only those that wait or work.")
    ] = False,
    failed: Annotated[bool, Query(description="Only those that went wrong.")] = False,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="Only older ones.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at the most.")] = 50,
) -> RunsAnswer:
    """`before` continues after the last one of an earlier answer."""
    found = await list_runs(
        store, job=job, bad=failed, unfinished=open_only, before=before, limit=limit
    )
    return RunsAnswer(runs=[RunAnswer.model_validate(run) for run in found])


@router.get("/runs/{number}", summary="One run", responses=declare_responses(_RUN, NotFoundError))
async def run(number: Number, store: StoreDep) -> RunAnswer:
    """With its progress while it works, and how it ended."""
    return RunAnswer.model_validate(await get_run(store, number))


def _job(job: Job, next_due: datetime | None, last_run: Run | None) -> JobAnswer:
    return JobAnswer(
        name=job.name,
        summary=job.summary,
        source=job.source,
        enabled=job.enabled,
        cron=job.cron,
        zone=job.zone,
        overlap=job.overlap,
        parameters=[
            Parameter(name=name, takes=describe_type(kind), default=job.params.get(name))
            for name, kind in sorted(param_types(job).items())
        ],
        next_due=next_due,
        last_run=RunAnswer.model_validate(last_run) if last_run else None,
    )
