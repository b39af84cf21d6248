"""Jobs: their declaration, their parameters, and the catalogue with the operator's changes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

if TYPE_CHECKING:
    from hasat.jobs.connection import Connection
    from hasat.jobs.context import RunContext

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches

from pydantic import TypeAdapter, ValidationError

from hasat.errors import NotFoundError, SettingsError, UsageError
from hasat.jobs.cron import Cron
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.reference import describe_type
from hasat.settings.types import check_http_url

LOCATION = "a file or an http(s) address"
Location = Annotated[str, LOCATION]
"""The type of a parameter that names a file or an address. A run on the command line may use both;
a queued run opens only http(s) addresses, which must be public."""

TASK = "hasat.run"
"""The only task of procrastinate; its argument is the run."""

APPROVE = "approve"
"""The parameter of a run that applies an approved hold: its id. Only an approval sets it."""

OutcomeKind = Literal["done", "nothing", "held", "out_of_quota", "skipped"]
RunOutcome = Literal[OutcomeKind, "failed", "set_aside", "interrupted"]
Trigger = Literal["schedule", "hand", "retry"]
State = Literal["queued", "running", "finished"]


@dataclass(frozen=True)
class Outcome:
    """The result that a job returns: its kind and the number of changed rows."""

    kind: OutcomeKind = "done"
    rows_changed: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True)
class Job:
    """A named piece of work and its schedule.

    `run` is an ``async def`` that shares its event loop with the worker's heartbeat: long
    computations belong in a thread or a process (``asyncio.to_thread``), or other workers take this
    one for dead and take the run over. It must let a cancellation through and be repeatable at any
    point, since a worker may die in the middle of it.
    """

    name: str
    run: "Callable[[RunContext], Awaitable[Outcome]]" = field(hash=False)
    summary: str
    cron: str | None = None
    """Five fields; None means manual only."""
    zone: str | None = None
    """The time zone of the cron expression; None means settings.jobs.timezone."""
    enabled: bool = True
    lane: str = "daily"
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    """The types of parameters, numbers annotated with their range, including optional parameters; a
    parameter that is not listed has the type of its default. None allows any parameter."""
    overlap: Literal["skip", "queue"] = "skip"
    """Whether a due time is skipped or queued while a run is open."""
    missed: Literal["once", "skip"] = "once"
    """Whether the newest missed time is run after an outage, or none."""
    source: str | None = None
    page: str | None = None
    """The page of the dashboard that starts it, if its runs need parameters."""
    wanted: "Callable[[Connection], Awaitable[bool]] | None" = field(default=None, hash=False)
    """Checked every few seconds: returns whether a run is needed although no time is due."""


@dataclass(frozen=True)
class Run:
    """One execution of a job: a row of jobs.run."""

    id: int
    job: str
    params: Mapping[str, Any]
    trigger: Trigger
    scheduled_for: datetime | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: State
    outcome: RunOutcome | None
    attempt: int
    worker: str | None
    requests: int
    rows_changed: int
    message: str | None
    error: str | None
    detail: Mapping[str, Any]
    progress: Mapping[str, Any] | None


_MAX_SHOWN = 100


def unknown_params(job: Job, given: Iterable[str]) -> list[str]:
    """Return the names of parameters that a job does not have."""
    if job.options is None:
        return []
    return [name for name in given if name not in job.params and name not in job.options]


def param_types(job: Job) -> dict[str, Any]:
    """Return the type of every parameter of a job, numbers with their range."""
    return {name: type(default) for name, default in job.params.items()} | dict(job.options or {})


def check_params(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for unknown parameters and for values that are invalid or not storable."""
    if unknown := unknown_params(job, given):
        known = sorted({*job.params, *(job.options or {})})
        has = msg("It has {names}.", names=", ".join(known)) if known else msg("It has none.")
        raise UsageError(
            msg("{job} has no parameter {unknown!r}.", job=job.name, unknown=unknown[0]),
            remedy=did_you_mean(unknown[0], known, otherwise=has),
        )
    check_values(job, given)
    _check_storable(job, given)


def check_values(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a value of a wrong type or outside its range; null is always allowed."""
    types = param_types(job)
    for name, value in given.items():
        kind = types.get(name, object)
        if value is None or kind is object:
            continue
        try:
            TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError as error:
            raise UsageError(
                msg("{name} of {job} is {value}.", name=name, job=job.name, value=_shown(value)),
                remedy=msg("Give {kind}.", kind=describe_type(kind)),
            ) from error


def check_locations(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a file in the parameters of a queued run, whether it exists or not.

    The worker has other rights than the caller. The configured value of a job is allowed.
    """
    for name, kind in param_types(job).items():
        value = given.get(name)
        if value is None or value == job.params.get(name):
            continue
        if LOCATION in getattr(kind, "__metadata__", ()):
            try:
                check_http_url(value)
            except ValueError as error:
                raise UsageError(
                    msg(
                        "{name} of {job} must be an http(s) address in a queued run.",
                        name=name,
                        job=job.name,
                    ),
                    remedy=msg(
                        "Files are read only by a run on the command line, such as `hasat jobs "
                        "run {job} --param {name}=FILE`.",
                        job=job.name,
                        name=name,
                    ),
                ) from error


def _check_storable(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for values that PostgreSQL cannot store as JSON."""
    try:
        text = json.dumps(dict(given), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            msg("The parameters of {job} cannot be stored.", job=job.name),
            remedy=msg("Use JSON without NaN, infinity, lone surrogates and deep nesting."),
        ) from error
    if "\0" in _all_text(given):
        raise UsageError(
            msg("The parameters of {job} contain the character U+0000.", job=job.name),
            remedy=msg("Remove the character."),
        )


def _all_text(value: Any) -> str:
    match value:
        case str():
            return value
        case Mapping():
            return "".join(_all_text(one) for pair in value.items() for one in pair)
        case list() | tuple():
            return "".join(map(_all_text, value))
    return ""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """Suggest the nearest known name; return other advice if none is near."""
    close = get_close_matches(name, list(known), n=1)
    return msg("Did you mean {close!r}?", close=close[0]) if close else otherwise


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        return msg("a number of thousands of digits")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# The name is also used as queue name, lock, setting and command-line argument.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True)
class Catalogue:
    """Every job by name, with checked cron expressions and time zones."""

    jobs: Mapping[str, Job]
    zone: str
    """The zone in which times are shown."""
    remarks: tuple[str, ...] = ()
    """Entries of the schedule without an effect, for `hasat config check` and `hasat doctor`."""

    @classmethod
    def of(cls, jobs: Iterable[Job], settings: Settings) -> "Catalogue":
        """Build the catalogue; raise SettingsError for an invalid job or override."""
        known: dict[str, Job] = {}
        for job in jobs:
            if not _NAME.fullmatch(job.name):
                raise SettingsError(
                    msg("{job!r} cannot be the name of a job.", job=job.name),
                    remedy=msg("Use lower-case letters, digits and underscores, a letter first."),
                )
            if job.name in known:
                raise SettingsError(msg("Two jobs share the name {job!r}.", job=job.name))
            known[job.name] = job
        declared = dict(known)
        remarks = []
        for name, override in settings.jobs.schedule.items():
            if name not in known:
                if close := get_close_matches(name, list(known), n=1):
                    raise SettingsError(
                        msg("jobs.schedule names a job {name!r}, which does not exist.", name=name),
                        remedy=msg("Did you mean {close!r}?", close=close[0]),
                    )
                # The configuration may contain sources that are not installed.
                remarks.append(
                    msg("jobs.schedule.{job} has no effect: there is no such job.", job=name)
                )
                continue
            job = known[name]
            # The original's jobs had parameters that are not needed here; null sets nothing.
            given = [param for param, value in override.params.items() if value is not None]
            remarks += [
                msg(
                    "jobs.schedule.{job}.params.{parameter} has no effect: the job has no such"
                    " parameter.",
                    job=name,
                    parameter=param,
                )
                for param in unknown_params(job, given)
            ]
            mode = {"mode": dict(override.mode)} if override.mode else {}
            known[name] = replace(
                job,
                enabled=job.enabled if override.enabled is None else override.enabled,
                cron=override.cron or job.cron,
                params={**job.params, **override.params, **mode},
            )
        catalogue = cls(
            {
                name: replace(job, zone=job.zone or settings.jobs.timezone)
                for name, job in sorted(known.items())
            },
            settings.jobs.timezone,
            tuple(remarks),
        )
        for job in catalogue:
            try:
                catalogue.cron(job)
                _check_params(job)
                check_values(declared[job.name], job.params)
            except UsageError as error:
                raise SettingsError(
                    msg("Job {job}: {error}", job=job.name, error=error.message),
                    remedy=error.remedy,
                ) from error
        return catalogue

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs.values())

    def __len__(self) -> int:
        return len(self.jobs)

    def get(self, name: str) -> Job:
        """Return a job by name; raise NotFoundError with the nearest name."""
        if name not in self.jobs:
            raise NotFoundError(
                msg("There is no job named {name!r}.", name=name),
                remedy=did_you_mean(
                    name, self.jobs, otherwise=msg("`hasat jobs list` shows all jobs.")
                ),
            )
        return self.jobs[name]

    def cron(self, job: Job) -> Cron | None:
        """Return the cron expression of a job, if it has one."""
        return Cron.parse(job.cron, job.zone or self.zone) if job.cron else None


def _check_params(job: Job) -> None:
    try:
        json.dumps(dict(job.params), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            msg("the parameters cannot be written as JSON: {error}.", error=error),
            remedy=msg("Use text, numbers, true, false, null, and lists and mappings of them."),
        ) from error
