"""Where a dataset's feed stands."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True)
class Head:
    """The row of a dataset in feed.head."""

    dataset: str
    epoch: UUID
    seq: int
    floor: int
    floor_at: datetime | None
    records: int
    digest: bytes
    version: int | None
    committed_at: datetime | None
