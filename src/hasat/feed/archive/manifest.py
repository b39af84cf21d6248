"""The manifest of an archive: the state it holds, the same in every format."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from hasat.clock import local_time
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset

Format = Literal["xml", "ndjson", "parquet"]
ENDINGS: dict[Format, str] = {"xml": "xml.gz", "ndjson": "ndjson.gz", "parquet": "parquet"}
MEDIA: dict[Format, str] = {
    "xml": "application/gzip",
    "ndjson": "application/gzip",
    "parquet": "application/vnd.apache.parquet",
}


def formats_of(dataset: Dataset) -> tuple[Format, ...]:
    """Return the formats of a dataset; the first is the default."""
    return ("ndjson", "parquet") if dataset.xml is None else ("xml", "ndjson", "parquet")


@dataclass(frozen=True)
class Manifest:
    """The state that an archive holds, with the cursor to continue from and its digest."""

    dataset: str
    epoch: UUID
    seq: int
    version: int
    records: int
    digest: bytes
    committed_at: datetime

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.dataset, self.epoch, self.seq)

    def as_dict(self) -> dict[str, Any]:
        """Return the manifest as it is written to files."""
        return {
            "dataset": self.dataset,
            "epoch": str(self.epoch),
            "cursor": str(self.cursor),
            "head": self.seq,
            "version": self.version,
            "count": self.records,
            "digest": self.digest.hex(),
            "committedAt": local_time(self.committed_at),
        }


@dataclass(frozen=True)
class WrittenFiles:
    """The files of one state, with the size and SHA-256 of each."""

    manifest: Manifest
    files: Mapping[Format, tuple[int, bytes]]


@dataclass(frozen=True)
class Archive(Manifest):
    """One file of a batch: a row of feed.archive."""

    id: int
    batch: str
    name: str
    format: Format
    size: int
    sha256: bytes
    created_at: datetime
    seat: str

    @property
    def path(self) -> str:
        """Return its path within the storage."""
        return path_of(self.dataset, self.name)

    def summary(self) -> dict[str, Any]:
        """Return the archive as lists show it; the first four names are the original service's."""
        return {
            "fileName": self.name,
            "sizeBytes": self.size,
            "createdAt": local_time(self.created_at),
            "userCount": self.records,
            "format": self.format,
            "cursor": str(self.cursor),
            "epoch": str(self.epoch),
            "head": self.seq,
            "version": self.version,
            "digest": self.digest.hex(),
            "sha256": self.sha256.hex(),
            "lastSyncAt": local_time(self.committed_at),
        }


def path_of(dataset: str, name: str) -> str:
    return f"{dataset}/{name}"
