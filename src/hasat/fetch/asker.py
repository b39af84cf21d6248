"""For whom a question is asked, as the ledger writes it down."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Asker:
    """The lane that pays, the job that asks and its run."""

    lane: str
    job: str
    run: int | None = None
