"""When things run: the catalogue, the clock's orders, the engine, the record of every run.

Works in the database only (schema `jobs` and procrastinate's tables); what a job does is its own.
"""

from hasat.jobs.catalogue import Catalogue, Job, Outcome, Run
from hasat.jobs.context import RunContext
from hasat.jobs.foreground import run_in_foreground
from hasat.jobs.platform_jobs import platform_jobs
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
