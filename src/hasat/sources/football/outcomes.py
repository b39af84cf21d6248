"""What an answer of API-Football means, and what its headers say is left.

Most errors come with status 200 and a filled `errors`. The words for the day's limit are looked
for first, whatever the status and the headers say: both are wrong exactly then. "Plan" and
"subscription" stand in the advice of other messages too, so they are looked for late.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hasat.budget import Remaining
from hasat.errors import BrokenAnswerError
from hasat.fetch import Client, Outcome, Request, Response, Verdict, retry_after
from hasat.fetch.client import NoResponseError
from hasat.messages import msg
from hasat.sources.football.ingest.envelope import is_envelope, parse, read_envelope
from hasat.sources.football.ingest.scopes import is_number

_DAY = re.compile(r"\b(daily|day)\b")
_KEY = re.compile(r"application key|api key|invalid key|token")
_BLOCKED = re.compile(
    r"\bip\b.*not allowed|domain.*not allowed|not allowed to call|account.*suspended"
)
_MINUTE = re.compile(r"too many requests|per[- ]minute|rate ?limit")
_PLAN = re.compile(r"\bplans?\b|subscription")
# Whatever else it may be, it is no word about what went wrong.
_FORMS_OF_ERRORS = (dict, list, str, type(None))
_FIELD = re.compile(r"required|field|parameter|regular expression|characters|must ")
_SECONDS = 10.0
# The count lags behind; far less than the limit is no lag.
_FAR_LESS = 0.9


def classify(answer: Response) -> Verdict:
    """The class of an answer, by the words in it before its status."""
    status, wait = answer.status, retry_after(answer.headers)
    content = _content(answer.body)
    errors = _errors(content)
    words = " ".join(f"{name} {text}" for name, text in errors.items()).lower()
    said = "; ".join(errors.values())[:200] or f"status {status}"
    if words and _is_day_limit(errors):
        return Verdict(Outcome.DAY_EXHAUSTED, said)
    if status == 429:
        return Verdict(Outcome.MINUTE_LIMITED, said, wait)
    if status in (401, 403) or "token" in errors or _BLOCKED.search(words):
        return Verdict(Outcome.UNAUTHORISED, said)
    if _MINUTE.search(words):
        return Verdict(Outcome.MINUTE_LIMITED, said, wait)
    if status in (408, 499) or status >= 500:
        return Verdict(Outcome.TRANSIENT, said, wait)
    if status == 204:
        return Verdict(Outcome.EMPTY)
    if errors:
        return _by_errors(errors, words, said)
    if status != 200:
        broken = Outcome.BAD_REQUEST if 400 <= status < 500 else Outcome.BROKEN
        return Verdict(broken, said)
    if not is_envelope(content) or not isinstance(content["errors"], _FORMS_OF_ERRORS):
        return Verdict(Outcome.BROKEN, "this is not the envelope of API-Football")
    return Verdict(Outcome.OK if content["response"] else Outcome.EMPTY)


def remaining(headers: Mapping[str, str]) -> Remaining:
    """What the headers say is left of the day and the minute; stale or absent ones included."""
    return Remaining(
        day=_number(headers.get("x-ratelimit-requests-remaining")),
        minute=_number(headers.get("x-ratelimit-remaining")),
        day_limit=_number(headers.get("x-ratelimit-requests-limit")),
        minute_limit=_number(headers.get("x-ratelimit-limit")),
    )


def _is_day_limit(errors: Mapping[str, str]) -> bool:
    """Whether the limit of the day is meant; a question's own day or date is not."""
    limits = ("requests", "ratelimit", "request", "rate_limit")
    return any(
        _DAY.search(text.lower()) and (name.lower() in limits or "limit" in text.lower())
        for name, text in errors.items()
    )


def _by_errors(errors: Mapping[str, str], words: str, said: str) -> Verdict:
    if "plan" in errors or (_PLAN.search(words) and not _FIELD.search(words)):
        return Verdict(Outcome.NOT_IN_PLAN, said)
    if _FIELD.search(words) or "required" in errors:
        return Verdict(Outcome.BAD_REQUEST, said)
    if _KEY.search(words):
        return Verdict(Outcome.UNAUTHORISED, said)
    # Seen in production without a pattern, and gone when asked again.
    return Verdict(Outcome.TRANSIENT, said)


def _content(body: bytes) -> Any:
    try:
        return parse(body).content
    except ValueError:
        return None


def _errors(content: Any) -> dict[str, str]:
    """The errors of an envelope by name; healthy ones are an empty list or object."""
    errors = content.get("errors") if isinstance(content, dict) else None
    if isinstance(errors, dict):
        return {str(name): str(text) for name, text in errors.items()}
    if isinstance(errors, list):
        return {str(n): str(text) for n, text in enumerate(errors)}
    if isinstance(errors, str) and errors:
        return {"errors": errors}
    message = content.get("message") if isinstance(content, dict) else None
    return {"message": message} if isinstance(message, str) else {}


def _number(text: str | None) -> int | None:
    """A count; where a proxy merged two values the lower one counts."""
    parts = [part.strip() for part in (text or "").split(",")]
    numbers = [int(part) for part in parts if is_number(part)]
    return min(numbers, default=None)


async def why_exhausted(client: Client, base_url: str, now: datetime) -> str | None:
    """What may have ended instead of the day's requests, as a sentence; None if nothing has."""
    told = await _status(client, base_url)
    return _lapsed(told, now) or _hardly_used(told)


async def is_used_up(client: Client, base_url: str, now: datetime) -> bool:
    """Return whether /status counts the day as used up, or shows that nothing can be asked."""
    told = await _status(client, base_url)
    counts = _counts(told)
    return counts is None or counts[0] >= counts[1] or _lapsed(told, now) is not None


async def _status(client: Client, base_url: str) -> Any:
    try:
        answer = await client.send(f"{base_url}/status", Request("/status", _SECONDS))
        return read_envelope(answer.body).response
    except (NoResponseError, BrokenAnswerError):
        return None


def _lapsed(told: Any, now: datetime) -> str | None:
    subscription = _part(told, "subscription")
    end = _moment(subscription.get("end"), now)
    if subscription.get("active") is not False and (end is None or end > now):
        return None
    if end is None:
        return msg("/status says that the subscription ended: renew it.")
    return msg("/status says that the subscription ended on {day}: renew it.", day=end.date())


def _hardly_used(told: Any) -> str | None:
    counts = _counts(told)
    if counts is None or counts[0] >= counts[1] * _FAR_LESS:
        return None
    current, limit = counts
    return msg(
        "/status counts only {current:,} of {limit:,}: see whether the subscription is paid.",
        current=current,
        limit=limit,
    )


def _counts(told: Any) -> tuple[int, int] | None:
    """The requests of the day, and how many there may be."""
    requests = _part(told, "requests")
    current, limit = requests.get("current"), requests.get("limit_day")
    return (current, limit) if isinstance(current, int) and isinstance(limit, int) else None


def _part(told: Any, name: str) -> dict[str, Any]:
    part = told.get(name) if isinstance(told, dict) else None
    return part if isinstance(part, dict) else {}


def _moment(text: Any, now: datetime) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
