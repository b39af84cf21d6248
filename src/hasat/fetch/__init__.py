"""The way out: questions to upstreams, each paid for, bounded, judged once and written down.

Sends requests and writes the schema `fetching`; knows no source by name. `Fetcher` asks an upstream
with one address, `HedgedFetcher` one that is reached over a pool of endpoints.
"""

from hasat.fetch.client import Client, ClientOptions
from hasat.fetch.endpoint_store import EndpointReport, read_endpoints
from hasat.fetch.fetcher import Fetcher
from hasat.fetch.hedging import HedgedFetcher, max_attempts
from hasat.fetch.outcomes import (
    FetchResult,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
    retry_after,
)
from hasat.fetch.pool import EndpointPool
from hasat.fetch.workers_file import Endpoint, Workers, read_workers

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
    "Workers",
    "max_attempts",
    "read_endpoints",
    "read_workers",
    "retry_after",
]
