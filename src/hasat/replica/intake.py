"""An archive on its way in: unpacked, counted and added up while it arrives.

NDJSON in gzip: a first line about the whole, then one line a record.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from hasat.clock import parse_local_time
from hasat.errors import UsageError
from hasat.feed.encoding import EMPTY, canonical, record_digest, shift, weight
from hasat.messages import msg
from hasat.replica.failures import TroubleError
from hasat.replica.target import Row, State


class BrokenArchiveError(TroubleError):
    """An archive does not match its manifest; nothing of it is used."""


class Intake:
    """Parses the bytes of an archive and stages its records; `finish` verifies them."""

    def __init__(self, dataset: str, put: Callable[[Iterable[Row]], None]) -> None:
        self.received = 0
        self.records = 0
        self._dataset = dataset
        self._put = put
        self._hash = hashlib.sha256()
        self._gzip = zlib.decompressobj(wbits=31)
        self._begun = b""
        self._weight = 0
        self._header: dict[str, Any] | None = None
        self._committed_at: datetime | None = None

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes of the file."""
        self.received += len(chunk)
        self._hash.update(chunk)
        try:
            self._read(self._unpack(chunk))
        except (zlib.error, ValueError, KeyError, TypeError, UsageError) as error:
            raise self._broken(f"it cannot be read ({error})") from error

    def finish(self, sha256: str, verified_at: datetime) -> State:
        """Return the state of the records, or raise an error if they are incomplete."""
        if self._hash.hexdigest() != sha256:
            raise self._broken("its SHA-256 is another than announced")
        if self._header is None or self._begun or not self._gzip.eof:
            raise self._broken("it ends in the middle")
        header = self._header
        if self.records != header["count"]:
            raise self._broken(f"it has {self.records} records instead of {header['count']}")
        digest = shift(EMPTY, self._weight).hex()
        if digest != header["digest"]:
            raise self._broken("its records do not have the state digest that it announces")
        return State(
            self._dataset,
            header["epoch"],
            header["cursor"],
            header["head"],
            digest,
            self.records,
            verified_at,
        )

    def _unpack(self, chunk: bytes) -> bytes:
        unpacked = []
        while chunk:
            # A file may consist of several gzip members.
            if self._gzip.eof:
                self._gzip = zlib.decompressobj(wbits=31)
            unpacked.append(self._gzip.decompress(chunk))
            chunk = self._gzip.unused_data
        return b"".join(unpacked)

    def _read(self, unpacked: bytes) -> None:
        *lines, self._begun = (self._begun + unpacked).split(b"\n")
        if lines and self._header is None:
            self._header = json.loads(lines.pop(0))
            if self._header["dataset"] != self._dataset:
                raise ValueError(f"it is of {self._header['dataset']}")
            self._committed_at = parse_local_time(self._header["committedAt"])
        if lines:
            self._put([self._row(line) for line in lines])

    def _row(self, line: bytes) -> Row:
        assert self._header is not None
        assert self._committed_at is not None
        record = json.loads(line)
        body = canonical(record["body"])
        self._weight += weight(record["key"], record_digest(body))
        self.records += 1
        return Row(record["key"], body, self._header["head"], self._committed_at)

    def _broken(self, why: str) -> BrokenArchiveError:
        return BrokenArchiveError(
            msg("The archive of {dataset} was not used: {why}.", dataset=self._dataset, why=why)
        )
