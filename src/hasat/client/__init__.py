"""A client of a Hasat server, synchronous and asynchronous.

    from hasat.client import Client

    with Client("https://hasat.example", key="hsk_...") as client:
        for change in client.changes("einvoice", after=cursor):
            ...

It needs httpx2 and nothing of the server. The package `hasat-client` has the same modules as
`hasat_client`, for programs that do not install Hasat itself.
"""

from .archives import Archive, MissingLibraryError
from .client import AsyncClient, Client
from .errors import (
    ClientError,
    ExpiredError,
    InvalidResponseError,
    NotAllowedError,
    NotFoundError,
    NotReachableError,
    ProblemError,
    UnavailableError,
)
from .models import (
    Alias,
    ArchiveInfo,
    Change,
    ChangePage,
    Check,
    CheckList,
    Digest,
    Malformed,
    Record,
    RecordPage,
    Registration,
)

__all__ = [
    "Alias",
    "Archive",
    "ArchiveInfo",
    "AsyncClient",
    "Change",
    "ChangePage",
    "Check",
    "CheckList",
    "Client",
    "ClientError",
    "Digest",
    "ExpiredError",
    "InvalidResponseError",
    "Malformed",
    "MissingLibraryError",
    "NotAllowedError",
    "NotFoundError",
    "NotReachableError",
    "ProblemError",
    "Record",
    "RecordPage",
    "Registration",
    "UnavailableError",
]
