"""Classification of API-Football's responses, rate-limit headers and the subscription's state.

Most errors come with status 200 and a filled `errors`. The words for the daily limit are matched
first, whatever the status and the headers say: both are wrong exactly then. "Plan" and
"subscription" also occur in the advice of other messages, so they are matched late.

When a subscription has ended, every response claims that the daily limit is used up. Only the free
/status distinguishes the two, so it is requested once in that case, outside of the spent budget.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from hasat.budget import Remaining
from hasat.errors import BrokenAnswerError
from hasat.fetch import Client, Outcome, Request, Response, Verdict, retry_after
from hasat.fetch.client import NoResponseError
from hasat.messages import msg
from hasat.sources.football.endpoints import is_number
from hasat.sources.football.ingest.envelope import Parsed, is_envelope, parse, read_envelope

_DAY = re.compile(r"\b(daily|day)\b")
_KEY = re.compile(r"application key|api key|invalid key|token")
_BLOCKED = re.compile(
    r"\bip\b.*not allowed|domain.*not allowed|not allowed to call|account.*suspended"
)
_MINUTE = re.compile(r"too many requests|per[- ]minute|rate ?limit")
_PLAN = re.compile(r"\bplans?\b|subscription")
_ERROR_TYPES = (dict, list, str, type(None))
_FIELD = re.compile(r"required|field|parameter|regular expression|characters|must ")
_STATUS_TIMEOUT = 10.0
# The count lags behind by some requests, not by a tenth of the limit.
_UNUSED_SHARE = 0.9


def classify(response: Response) -> Verdict:
    """Classify a response, by the words in it before its status."""
    status, wait = response.status, retry_after(response.headers)
    parsed = _parse(response.body)
    verdict = _classify(None if parsed is None else parsed.document, status, wait)
    return replace(verdict, content=parsed)


def _classify(document: Any, status: int, wait: float | None) -> Verdict:
    errors = _errors(document)
    words = " ".join(f"{name} {text}" for name, text in errors.items()).lower()
    reason = "; ".join(errors.values())[:200] or f"status {status}"
    if words and _is_day_limit(errors):
        return Verdict(Outcome.DAY_EXHAUSTED, reason)
    if status == 429:
        return Verdict(Outcome.MINUTE_LIMITED, reason, wait)
    if status in (401, 403) or "token" in errors or _BLOCKED.search(words):
        return Verdict(Outcome.UNAUTHORISED, reason)
    if _MINUTE.search(words):
        return Verdict(Outcome.MINUTE_LIMITED, reason, wait)
    if status in (408, 499) or status >= 500:
        return Verdict(Outcome.TRANSIENT, reason, wait)
    if status == 204:
        return Verdict(Outcome.EMPTY)
    if errors:
        return _by_errors(errors, words, reason)
    if status != 200:
        broken = Outcome.BAD_REQUEST if 400 <= status < 500 else Outcome.BROKEN
        return Verdict(broken, reason)
    if not is_envelope(document) or not isinstance(document["errors"], _ERROR_TYPES):
        return Verdict(Outcome.BROKEN, "this is not the envelope of API-Football")
    return Verdict(Outcome.OK if document["response"] else Outcome.EMPTY)


def remaining(headers: Mapping[str, str]) -> Remaining:
    """Read the remaining requests of the day and the minute from headers, stale ones included."""
    return Remaining(
        day=_number(headers.get("x-ratelimit-requests-remaining")),
        minute=_number(headers.get("x-ratelimit-remaining")),
        day_limit=_number(headers.get("x-ratelimit-requests-limit")),
        minute_limit=_number(headers.get("x-ratelimit-limit")),
    )


def _is_day_limit(errors: Mapping[str, str]) -> bool:
    """Whether the errors mean the daily limit, not the day or date of the request."""
    limits = ("requests", "ratelimit", "request", "rate_limit")
    return any(
        _DAY.search(text.lower()) and (name.lower() in limits or "limit" in text.lower())
        for name, text in errors.items()
    )


def _by_errors(errors: Mapping[str, str], words: str, reason: str) -> Verdict:
    if "plan" in errors or (_PLAN.search(words) and not _FIELD.search(words)):
        return Verdict(Outcome.NOT_IN_PLAN, reason)
    if _FIELD.search(words) or "required" in errors:
        return Verdict(Outcome.BAD_REQUEST, reason)
    if _KEY.search(words):
        return Verdict(Outcome.UNAUTHORISED, reason)
    # Seen in production without a pattern, and gone on the next try.
    return Verdict(Outcome.TRANSIENT, reason)


def _parse(body: bytes) -> Parsed | None:
    try:
        return parse(body)
    except ValueError:
        return None


def _errors(document: Any) -> dict[str, str]:
    """Return the errors of an envelope by name; without errors it has an empty list or object."""
    errors = document.get("errors") if isinstance(document, dict) else None
    if isinstance(errors, dict):
        return {str(name): str(text) for name, text in errors.items()}
    if isinstance(errors, list):
        return {str(n): str(text) for n, text in enumerate(errors)}
    if isinstance(errors, str) and errors:
        return {"errors": errors}
    message = document.get("message") if isinstance(document, dict) else None
    return {"message": message} if isinstance(message, str) else {}


def _number(text: str | None) -> int | None:
    """Read a count; if a proxy merged two values, the lower one."""
    parts = [part.strip() for part in (text or "").split(",")]
    numbers = [int(part) for part in parts if is_number(part)]
    return min(numbers, default=None)


async def why_exhausted(client: Client, base_url: str, now: datetime) -> str | None:
    """Return why the day may be refused other than by its limit, or None."""
    account = await _status(client, base_url)
    return _lapsed(account, now) or _hardly_used(account)


async def is_used_up(client: Client, base_url: str, now: datetime) -> bool:
    """Whether /status counts the day as used up, or shows that no request can succeed."""
    account = await _status(client, base_url)
    counts = _counts(account)
    return counts is None or counts[0] >= counts[1] or _lapsed(account, now) is not None


async def _status(client: Client, base_url: str) -> Any:
    try:
        response = await client.send(f"{base_url}/status", Request("/status", _STATUS_TIMEOUT))
        return read_envelope(response.body).response
    except (NoResponseError, BrokenAnswerError):
        return None


def _lapsed(account: Any, now: datetime) -> str | None:
    subscription = _part(account, "subscription")
    end = _time(subscription.get("end"), now)
    if subscription.get("active") is not False and (end is None or end > now):
        return None
    if end is None:
        return msg("/status reports that the subscription has ended: renew it.")
    return msg("/status reports that the subscription ended on {day}: renew it.", day=end.date())


def _hardly_used(account: Any) -> str | None:
    counts = _counts(account)
    if counts is None or counts[0] >= counts[1] * _UNUSED_SHARE:
        return None
    current, limit = counts
    return msg(
        "/status counts only {current:,} of {limit:,} requests: check that the subscription is"
        " paid.",
        current=current,
        limit=limit,
    )


def _counts(account: Any) -> tuple[int, int] | None:
    """Return the day's requests and their limit."""
    requests = _part(account, "requests")
    current, limit = requests.get("current"), requests.get("limit_day")
    return (current, limit) if isinstance(current, int) and isinstance(limit, int) else None


def _part(account: Any, name: str) -> dict[str, Any]:
    part = account.get(name) if isinstance(account, dict) else None
    return part if isinstance(part, dict) else {}


def _time(text: Any, now: datetime) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=now.tzinfo)
