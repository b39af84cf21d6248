"""What /status says of the subscription: the one question that costs nothing, whatever is left.

When a subscription has ended, every answer is that the day is used up. Only /status tells the two
apart, so it is asked once when the API says so, outside of the budget that is spent then.
"""

from datetime import datetime
from typing import Any

from hasat.errors import BrokenAnswerError
from hasat.fetch import Client, Question
from hasat.fetch.client import NoAnswerError
from hasat.messages import msg
from hasat.sources.football.envelope import read_envelope

_SECONDS = 10.0
# The count lags behind; far less than the limit is no lag.
_FAR_LESS = 0.9


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
        answer = await client.send(f"{base_url}/status", Question("/status", _SECONDS))
        return read_envelope(answer.body).response
    except (NoAnswerError, BrokenAnswerError):
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
