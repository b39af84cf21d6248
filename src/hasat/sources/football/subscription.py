"""What /status says of the subscription: the one question that costs nothing, whatever is left.

When a subscription has ended, every answer is that the day is used up. Only /status tells the two
apart, so it is asked once when the API says so, outside of the budget that is spent then.
"""

from datetime import datetime
from typing import Any

from hasat.errors import BrokenAnswerError
from hasat.fetch import Client, Question
from hasat.fetch.client import NoAnswerError
from hasat.sources.football.envelope import read_envelope

_SECONDS = 10.0
# The count lags behind; far less than the limit is no lag.
_FAR_LESS = 0.9


async def why_exhausted(client: Client, base_url: str, now: datetime) -> str | None:
    """What may have ended instead of the day's requests, as a sentence; None if nothing has."""
    try:
        answer = await client.send(f"{base_url}/status", Question("/status", _SECONDS))
        told = read_envelope(answer.body).response
    except (NoAnswerError, BrokenAnswerError):
        return None
    return _lapsed(told, now) or _hardly_used(told)


def _lapsed(told: Any, now: datetime) -> str | None:
    subscription = _part(told, "subscription")
    end = _moment(subscription.get("end"), now)
    if subscription.get("active") is not False and (end is None or end > now):
        return None
    when = "" if end is None else f" on {end:%Y-%m-%d}"
    return f"/status says that the subscription ended{when}: renew it."


def _hardly_used(told: Any) -> str | None:
    requests = _part(told, "requests")
    current, limit = requests.get("current"), requests.get("limit_day")
    if not (isinstance(current, int) and isinstance(limit, int) and current < limit * _FAR_LESS):
        return None
    return f"/status counts only {current:,} of {limit:,}: see whether the subscription is paid."


def _part(told: Any, name: str) -> dict[str, Any]:
    part = told.get(name) if isinstance(told, dict) else None
    return part if isinstance(part, dict) else {}


def _moment(text: Any, now: datetime) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
