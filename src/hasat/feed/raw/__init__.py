"""Raw responses: what an upstream sent, stored verbatim with its request in raw.response.

Small responses are in the database. Large ones are files named by their content: in the object
store where one is configured (`archives.provider` S3), otherwise in HASAT_HOME of the machine that
received them. A response whose records entered the mirror is marked in that same transaction, so
that a rebuild never publishes what the guard held.
"""

from hasat.feed.raw.responses import (
    MAX_INLINE_BYTES,
    RawRequest,
    StoredResponse,
    delete_expired_bodies,
    expire_responses,
    iter_applied,
    last_applied_size,
    mark_applied,
    mark_newest_applied,
    open_stored,
    store_body,
    store_body_now,
    store_file,
)

__all__ = [
    "MAX_INLINE_BYTES",
    "RawRequest",
    "StoredResponse",
    "delete_expired_bodies",
    "expire_responses",
    "iter_applied",
    "last_applied_size",
    "mark_applied",
    "mark_newest_applied",
    "open_stored",
    "store_body",
    "store_body_now",
    "store_file",
]
