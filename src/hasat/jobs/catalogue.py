"""The jobs of an installation, with the operator's changes applied."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

import structlog

from hasat.errors import NotFoundError, SettingsError, UsageError
from hasat.jobs.cron import Cron
from hasat.jobs.model import Job
from hasat.jobs.params import check_values, did_you_mean, unknown_params
from hasat.messages import msg
from hasat.settings import Settings

# A job's name is a queue's name, a lock, a setting's key and a word on the command line.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Catalogue:
    """Every job by name; crons are checked, zones are filled in."""

    jobs: Mapping[str, Job]
    zone: str
    """The zone in which times are shown."""

    @classmethod
    def of(cls, jobs: Iterable[Job], settings: Settings) -> "Catalogue":
        """A checked catalogue; SettingsError says which job or override is wrong."""
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
        for name, override in settings.jobs.schedule.items():
            if name not in known:
                if close := get_close_matches(name, list(known), n=1):
                    raise SettingsError(
                        msg("jobs.schedule names a job {name!r}, which does not exist.", name=name),
                        remedy=msg("Did you mean {close!r}?", close=close[0]),
                    )
                # Configuration may speak of sources that are not installed here.
                log.warning("the schedule names a job of no installed source", job=name)
                continue
            job = known[name]
            for param in unknown_params(job, override.params):
                # What the original's job had and ours has no use for does no harm.
                log.warning("a job has no such parameter", job=name, parameter=param)
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
        """The job of that name; NotFoundError with the nearest name if there is none."""
        if name not in self.jobs:
            raise NotFoundError(
                msg("There is no job named {name!r}.", name=name),
                remedy=did_you_mean(name, self.jobs, otherwise="`hasat jobs list` shows all jobs."),
            )
        return self.jobs[name]

    def cron(self, job: Job) -> Cron | None:
        """When a job of this catalogue is due, if it has a cron at all."""
        return Cron.parse(job.cron, job.zone or self.zone) if job.cron else None


def _check_params(job: Job) -> None:
    try:
        json.dumps(dict(job.params), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            msg("its params cannot be written as JSON: {error}.", error=error),
            remedy=msg("Use texts, numbers, true, false, null, lists and mappings of them."),
        ) from error
