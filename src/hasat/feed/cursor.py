"""Positions in a dataset's feed: the cursor of a consumer and the head of the dataset."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hasat.errors import UsageError
from hasat.messages import msg

_CHECK = 4


@dataclass(frozen=True)
class Cursor:
    """A consumer's position: it has everything up to and including `seq` of this epoch."""

    dataset: str
    epoch: UUID
    seq: int

    def __str__(self) -> str:
        payload = self.epoch.bytes + self.seq.to_bytes(8, "big") + self.dataset.encode()
        check = binascii.crc32(payload).to_bytes(_CHECK, "big")
        return urlsafe_b64encode(check + payload).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parse a cursor; reject any text that Hasat did not create."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            check, payload = raw[:_CHECK], raw[_CHECK:]
            if binascii.crc32(payload).to_bytes(_CHECK, "big") != check:
                raise ValueError(text)
            seq = int.from_bytes(payload[16:24], "big")
            cursor = cls(payload[24:].decode(), UUID(bytes=payload[:16]), seq)
            if str(cursor) != text:
                raise ValueError(text)
        except (ValueError, UnicodeError) as error:
            raise UsageError(
                msg("This is not a cursor of Hasat."),
                remedy=msg(
                    "Use `next` of an earlier response or the cursor of an archive, unchanged."
                ),
            ) from error
        return cursor


@dataclass(frozen=True)
class Head:
    """The newest state of a dataset: its row in feed.head."""

    dataset: str
    epoch: UUID
    seq: int
    floor: int
    floor_at: datetime | None
    records: int
    digest: bytes
    version: int | None
    committed_at: datetime | None
