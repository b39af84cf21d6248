"""What an answer about parcels means.

"No parcel here" comes as a 404 with a message, as a 200 with one, or as XML; the daily limit as a
403 with a message. A 404 of somebody else, such as of a wrong address, is not an empty parcel.
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


def classify(answer: Response) -> Verdict:
    """The class of an answer of the registry or of an endpoint that passes its answers on."""
    content = _content(answer.body)
    message = message_of(answer.body) or ""
    status, wait = answer.status, retry_after(answer.headers)
    said = f"{status}: {message[:200]}" if message else f"status {status}"
    if status == 401:
        return Verdict(Outcome.UNAUTHORISED, said)
    if status in (200, 403, 429) and says_daily_limit(message):
        return Verdict(Outcome.DAY_EXHAUSTED, said)
    if status in (403, 429):
        return Verdict(Outcome.MINUTE_LIMITED, said, wait)
    if status in (408, 425, 499) or status >= 500:
        return Verdict(Outcome.TRANSIENT, said, wait)
    if status in (200, 404) and says_nothing_there(message):
        return Verdict(Outcome.EMPTY)
    # A passive parcel can come with 404; its successors are in it.
    if status in (200, 404) and _is_answer(content):
        return Verdict(Outcome.OK)
    if status == 204 or (status == 404 and not answer.body.strip()):
        return Verdict(Outcome.EMPTY)
    if status == 404 and isinstance(content, dict):
        return Verdict(Outcome.BAD_REQUEST if message else Outcome.EMPTY, said)
    if status in _BAD_REQUEST:
        return Verdict(Outcome.BAD_REQUEST, said)
    return Verdict(Outcome.BROKEN, f"{said}: this is no answer about parcels")


def says_nothing_there(message: str) -> bool:
    """Whether a message is the registry's definitive "there is no parcel"."""
    return _NOT_FOUND.search(lower(message)) is not None


def says_daily_limit(message: str) -> bool:
    """Whether a message means that this address has asked enough for today."""
    return _DAY_OVER.search(lower(message)) is not None


def message_of(body: bytes) -> str | None:
    """The sentence in an answer: JSON `Message`, a JSON text, XML `<string>`, or plain text."""
    return _message(_content(body), body) or None


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_answer(content: Any) -> bool:
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
