"""Requests, responses, and the outcomes that decide what happens next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from hasat.store.quarantine import storable_text

# One header must not stop requests for longer.
_MAX_RETRY_AFTER = 3_600.0


class Outcome(StrEnum):
    """The class of a response."""

    OK = "ok"
    EMPTY = "empty"
    MINUTE_LIMITED = "minute_limited"
    DAY_EXHAUSTED = "day_exhausted"
    UNAUTHORISED = "unauthorised"
    NOT_IN_PLAN = "not_in_plan"
    BAD_REQUEST = "bad_request"
    TRANSIENT = "transient"
    BROKEN = "broken"


# Repeating a request after one of these changes nothing.
DEFINITIVE = frozenset({Outcome.OK, Outcome.EMPTY, Outcome.NOT_IN_PLAN, Outcome.BAD_REQUEST})


@dataclass(frozen=True)
class Request:
    """One request, independent of the endpoint that receives it; `points` is its cost.

    Requests of one `kind` take about equally long. `hedge` allows a second attempt while the first
    is in flight: not for costly requests. With `by_number` (mahalleId, adaNo, parselNo) the path is
    the endpoint's own, and only endpoints that have one receive the request.
    """

    path: str
    timeout: float
    kind: str = "single"
    method: str = "GET"
    params: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    points: int = 1
    hedge: bool = True
    by_number: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Response:
    """A response; the body is verbatim after decompression, header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """The outcome of a request, its reason, and how long the upstream asks to wait."""

    outcome: Outcome
    reason: str = ""
    retry_after: float | None = None
    content: Any = field(default=None, compare=False, repr=False)
    """The parsed body, if the classifier parsed it."""

    def __post_init__(self) -> None:
        # The reason quotes the upstream, and is logged and stored.
        object.__setattr__(self, "reason", storable_text(self.reason))


Classify = Callable[[Response], Verdict]
"""Classifies a response by status, headers and body alone; called once per response."""


def classify_status(response: Response) -> Verdict:
    """Classify a response by its status alone, for an upstream that uses HTTP as intended."""
    status = response.status
    reason = f"the server responded {status}"
    if status == 200:
        return Verdict(Outcome.OK)
    if status in (204, 404, 410):
        return Verdict(Outcome.EMPTY, reason)
    if status == 429:
        return Verdict(Outcome.MINUTE_LIMITED, reason, retry_after(response.headers))
    if status in (401, 403):
        return Verdict(Outcome.UNAUTHORISED, reason)
    if status == 402:
        return Verdict(Outcome.NOT_IN_PLAN, reason)
    if status == 408 or status >= 500:
        return Verdict(Outcome.TRANSIENT, reason, retry_after(response.headers))
    return Verdict(Outcome.BAD_REQUEST if 400 <= status < 500 else Outcome.BROKEN, reason)


@dataclass(frozen=True)
class FetchResult:
    """The verdict on a request, and the response if there was one."""

    verdict: Verdict
    response: Response | None
    endpoint: str

    @property
    def body(self) -> bytes:
        return self.response.body if self.response else b""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After, in either of its forms; None if it cannot be read.

    A date is compared with the response's own Date header, so that the local clock does not matter.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _MAX_RETRY_AFTER)
    then = _moment(text)
    now = _moment(headers["date"]) if "date" in headers else datetime.now(UTC)
    if then is None or now is None:
        return None
    return min(max((then - now).total_seconds(), 0.0), _MAX_RETRY_AFTER)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    # The parser is written for mail and raises more than ValueError.
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True)
class RequestContext:
    """The lane, job and run that a request is recorded under in the ledger."""

    lane: str
    job: str
    run: int | None = None
