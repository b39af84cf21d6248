"""The way out: questions to upstreams, each paid for, bounded, judged once and written down.

Sends requests and writes the schema `fetching`; knows no source by name. `Fetcher` asks an upstream
with one address, `Racer` one that is reached over a pool of endpoints.
"""

from hasat.fetch.asker import Asker
from hasat.fetch.client import Client, Rules
from hasat.fetch.fetcher import Fetcher
from hasat.fetch.outcome import Answer, Fetched, Outcome, Question, Verdict, retry_after
from hasat.fetch.pool import EndpointPool
from hasat.fetch.race import Racer, most_tries
from hasat.fetch.report import EndpointReport, read_endpoints
from hasat.fetch.workers import Endpoint, Workers, read_workers

__all__ = [
    "Answer",
    "Asker",
    "Client",
    "Endpoint",
    "EndpointPool",
    "EndpointReport",
    "Fetched",
    "Fetcher",
    "Outcome",
    "Question",
    "Racer",
    "Rules",
    "Verdict",
    "Workers",
    "most_tries",
    "read_endpoints",
    "read_workers",
    "retry_after",
]
