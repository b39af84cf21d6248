"""What an upstream said, and what it means: the classes that decide what is done next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from hasat.store.values import storable_text

# No upstream may silence us for longer by one header.
_LONGEST_WAIT = 3_600.0


class Outcome(StrEnum):
    """The class of an answer; it says what to do."""

    OK = "ok"
    EMPTY = "empty"
    MINUTE_LIMITED = "minute_limited"
    DAY_EXHAUSTED = "day_exhausted"
    UNAUTHORISED = "unauthorised"
    NOT_IN_PLAN = "not_in_plan"
    BAD_REQUEST = "bad_request"
    TRANSIENT = "transient"
    BROKEN = "broken"


# These are the upstream's last word on the question: asking again changes nothing.
DEFINITIVE = frozenset({Outcome.OK, Outcome.EMPTY, Outcome.NOT_IN_PLAN, Outcome.BAD_REQUEST})


@dataclass(frozen=True)
class Request:
    """One request, whatever the address it is sent to; `points` is what it costs.

    `kind` names questions whose answers take alike long. `hedge` allows a second try while the
    first is still out: not for costly questions. With `by_number` (mahalleId, adaNo, parselNo)
    the path is the endpoint's own, and only endpoints that have one are asked.
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
    """An answer as it came; the body is verbatim after gzip, header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """The class of an answer, the reason in words, and how long the upstream asks to wait."""

    outcome: Outcome
    reason: str = ""
    retry_after: float | None = None
    content: Any = field(default=None, compare=False, repr=False)
    """The parsed body, if the classifier parsed it."""

    def __post_init__(self) -> None:
        # The reason quotes the upstream, and is logged and stored.
        object.__setattr__(self, "reason", storable_text(self.reason))


# Decides by status, headers and body alone, once for each answer.
Classify = Callable[[Response], Verdict]


@dataclass(frozen=True)
class FetchResult:
    """What came of a question: the verdict, and the answer if there was one."""

    verdict: Verdict
    response: Response | None
    endpoint: str

    @property
    def body(self) -> bytes:
        return self.response.body if self.response else b""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that Retry-After asks for, in either of its forms; None if it cannot be read.

    A date is measured against the answer's own Date, so that our clock does not matter.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_WAIT)
    then = _moment(text)
    now = _moment(headers["date"]) if "date" in headers else datetime.now(UTC)
    if then is None or now is None:
        return None
    return min(max((then - now).total_seconds(), 0.0), _LONGEST_WAIT)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    # The parser is written for mail and stumbles over much more than it should.
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True)
class RequestContext:
    """The lane that pays, the job that asks and its run."""

    lane: str
    job: str
    run: int | None = None
