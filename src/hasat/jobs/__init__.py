"""Jobs on procrastinate: the catalogue, the schedule, the worker and the record of every run.

All state is in the database: the schema `jobs` and procrastinate's tables.
"""

from typing import TYPE_CHECKING

from hasat.jobs.catalogue import Catalogue, Job, Outcome, Run
from hasat.jobs.context import RunContext
from hasat.jobs.platform_jobs import platform_jobs
from hasat.lazy import lazy_names

if TYPE_CHECKING:
    from hasat.jobs.foreground import run_in_foreground
    from hasat.jobs.worker import Worker

__all__ = [
    "Catalogue",
    "Job",
    "Outcome",
    "Run",
    "RunContext",
    "Worker",
    "platform_jobs",
    "run_in_foreground",
]

# Procrastinate is needed to run jobs, not to list them.
__getattr__ = lazy_names(
    __name__,
    {"hasat.jobs.foreground": ("run_in_foreground",), "hasat.jobs.worker": ("Worker",)},
)
