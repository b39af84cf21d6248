"""Outbound HTTP: requests with a grant from the budget, retries, classification and hedging.

`Fetcher` sends requests to an upstream with one address, `HedgedFetcher` to one that is reached
over a pool of endpoints. The state that processes share is in the schema `fetching`.
"""

from typing import TYPE_CHECKING

from hasat.fetch.client import Client, ClientOptions
from hasat.fetch.fetcher import Fetcher
from hasat.fetch.outcomes import (
    FetchResult,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
    retry_after,
)
from hasat.fetch.workers_file import Endpoint, WorkersFile, read_workers
from hasat.lazy import lazy_names

if TYPE_CHECKING:
    from hasat.fetch.endpoint_store import EndpointReport, read_endpoints, reset_rests
    from hasat.fetch.hedging import HedgedFetcher, max_attempts
    from hasat.fetch.pool import EndpointPool

__all__ = [
    "Client",
    "ClientOptions",
    "Endpoint",
    "EndpointPool",
    "EndpointReport",
    "FetchResult",
    "Fetcher",
    "HedgedFetcher",
    "Outcome",
    "Request",
    "RequestContext",
    "Response",
    "Verdict",
    "WorkersFile",
    "max_attempts",
    "read_endpoints",
    "read_workers",
    "reset_rests",
    "retry_after",
]

# Only upstreams with a pool of endpoints need these.
__getattr__ = lazy_names(
    __name__,
    {
        "hasat.fetch.endpoint_store": ("EndpointReport", "read_endpoints", "reset_rests"),
        "hasat.fetch.hedging": ("HedgedFetcher", "max_attempts"),
        "hasat.fetch.pool": ("EndpointPool",),
    },
)
