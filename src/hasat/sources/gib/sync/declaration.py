"""The job of the synchronisation; what it runs is imported when it runs."""

from typing import Final

from hasat.jobs import Job
from hasat.jobs.catalogue import Location
from hasat.messages import msg
from hasat.source import lazy
from hasat.sources.gib.datasets import SOURCE

NAME: Final = "gib_sync"

SYNC: Final = Job(
    NAME,
    lazy("hasat.sources.gib.sync.job:run"),
    msg("Fetches both taxpayer lists and updates einvoice and edespatch."),
    cron="0 3,9,15,21 * * *",
    options={"pk": Location, "gb": Location},
    source=SOURCE,
)
