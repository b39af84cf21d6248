"""When things run: the catalogue, the clock's orders, the engine, the record of every run.

Works in the database only (schema `jobs` and procrastinate's tables); what a job does is its own.
"""

from hasat.jobs.catalogue import Catalogue
from hasat.jobs.context import RunContext
from hasat.jobs.engine import Engine
from hasat.jobs.foreground import run_in_foreground
from hasat.jobs.housekeeping import platform_jobs
from hasat.jobs.model import Job, Outcome, Run

__all__ = [
    "Catalogue",
    "Engine",
    "Job",
    "Outcome",
    "Run",
    "RunContext",
    "platform_jobs",
    "run_in_foreground",
]
