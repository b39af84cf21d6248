"""Classify responses about parcels.

"No parcel here" is a 404 with a message, a 200 with one, or XML; the daily limit is a 403 with a
message. A 404 without such a message, as from a wrong address, does not mean "no parcel".
"""

import json
import re
from typing import Any

from hasat.fetch import Outcome, Response, Verdict, retry_after
from hasat.text import lower

_NOT_FOUND = re.compile(r"bulunamad")
_DAY_OVER = re.compile(
    r"g[uü]nl[uü]k.{0,40}(limit|kota)|limit[a-zçğıiöşü]*\s+a[sş]"
    r"|(daily|per day).{0,40}limit|limit.{0,40}(for the day|per day|daily)"
)
_WRAPPED = re.compile(r"<string[^>]*>(.*?)</string>", re.DOTALL)
_BAD_REQUEST = frozenset({400, 405, 406, 411, 413, 414, 415, 422})


def classify(response: Response) -> Verdict:
    """Return the outcome of a response of the registry, or of an endpoint that forwards it."""
    content = _content(response.body)
    message = parse_message(response.body) or ""
    status, wait = response.status, retry_after(response.headers)
    reason = f"{status}: {message[:200]}" if message else f"status {status}"
    if status == 401:
        return Verdict(Outcome.UNAUTHORISED, reason)
    if status in (200, 403, 429) and is_daily_limit(message):
        return Verdict(Outcome.DAY_EXHAUSTED, reason)
    if status in (403, 429):
        return Verdict(Outcome.MINUTE_LIMITED, reason, wait)
    if status in (408, 425, 499) or status >= 500:
        return Verdict(Outcome.TRANSIENT, reason, wait)
    if status in (200, 404) and is_not_found(message):
        return Verdict(Outcome.EMPTY)
    # A passive parcel can come with 404; its successors are in it.
    if status in (200, 404) and _is_result(content):
        return Verdict(Outcome.OK)
    if status == 204 or (status == 404 and not response.body.strip()):
        return Verdict(Outcome.EMPTY)
    if status == 404 and isinstance(content, dict):
        return Verdict(Outcome.BAD_REQUEST if message else Outcome.EMPTY, reason)
    if status in _BAD_REQUEST:
        return Verdict(Outcome.BAD_REQUEST, reason)
    return Verdict(Outcome.BROKEN, f"{reason}: this is no response about parcels")


def is_not_found(message: str) -> bool:
    """Return whether a message is the registry's definitive "there is no parcel"."""
    return _NOT_FOUND.search(lower(message)) is not None


def is_daily_limit(message: str) -> bool:
    """Return whether a message means that the daily limit of this address is reached."""
    return _DAY_OVER.search(lower(message)) is not None


def parse_message(body: bytes) -> str | None:
    """Return the message of a response: JSON `Message`, a JSON string, XML, or plain text."""
    return _message(_content(body), body) or None


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_result(content: Any) -> bool:
    if not isinstance(content, dict):
        return isinstance(content, list)
    kinds = ("Feature", "FeatureCollection")
    return content.get("type") in kinds or isinstance(content.get("results"), list)


def _message(content: Any, body: bytes) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        for name in ("Message", "message", "error"):
            if isinstance(content.get(name), str):
                return str(content[name])
        return ""
    text = body[:4000].decode("utf-8", "replace")
    if wrapped := _WRAPPED.search(text):
        return wrapped[1].strip()
    return "" if "<" in text else text.strip()
