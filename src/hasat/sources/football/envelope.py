"""The envelope around every answer of API-Football."""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import orjson

from hasat.errors import BrokenAnswerError
from hasat.feed.digest import canonical


@dataclass(frozen=True)
class Envelope:
    """One answer: what was asked, what went wrong, which page this is, and the rows."""

    get: str
    parameters: Mapping[str, str]
    errors: Mapping[str, str]
    results: int
    page: int
    pages: int
    response: Any
    told: Any = None
    """All of it, as it is kept in RAW."""
    mended: bool = False
    """Whether it held characters that no text in PostgreSQL can have; U+FFFD stands for them."""
    whole: bool = False
    """Whether every number in it is a short whole one, which everybody spells alike."""

    @property
    def is_part(self) -> bool:
        """Whether rows are missing: other pages have them, or it has fewer than it counts."""
        rows = self.response
        return self.pages > 1 or (isinstance(rows, list) and len(rows) < self.results)

    @property
    def is_empty(self) -> bool:
        """Whether it is a definitive "nothing here"."""
        return not self.errors and not self.response


def read_envelope(body: bytes | str) -> Envelope:
    """The envelope in an answer; lists and objects stand for one another where they are empty."""
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    try:
        told, whole = parsed(body)
        mended = told if _SUSPECT.search(body) is None else _mended(told)
    except (ValueError, RecursionError) as error:
        raise BrokenAnswerError("The answer is not JSON.") from error
    is_mended, told = mended != told, mended
    if not is_envelope(told):
        raise BrokenAnswerError("The answer is not an envelope: response or errors is missing.")
    paging = told.get("paging")
    paging = paging if isinstance(paging, dict) else {}
    return Envelope(
        str(told.get("get", "")).strip("/"),
        _texts(told.get("parameters")),
        _texts(told["errors"]),
        _count(told.get("results"), 0),
        # Older answers of the top lists count from 0.
        max(1, _count(paging.get("current"), 1)),
        max(1, _count(paging.get("total"), 1)),
        told["response"],
        told,
        is_mended,
        whole,
    )


def parsed(body: bytes) -> tuple[Any, bool]:
    """What the JSON says, and whether all numbers in it are short whole ones."""
    if _has_short_whole_numbers(body):
        # It is stricter about what is text.
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(body), True
    return json.loads(body, parse_float=_number, parse_constant=_no_number), False


def is_envelope(told: Any) -> bool:
    return isinstance(told, dict) and "response" in told and "errors" in told


def spelled(body: Any, *, whole: bool = False) -> bytes:
    """The canonical spelling of what `read_envelope` read: what `canonical` says, sooner."""
    try:
        quick = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return canonical(body)
    # Of the numbers that can be in there, only very small ones have another spelling.
    if not whole and (b"e-" in quick or b"0.0000" in quick):
        return canonical(body)
    return quick


_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SUSPECT = re.compile(rb"\\u(?:0000|d[89a-f])", re.IGNORECASE)
# From here on Python and PostgreSQL would spell the same number differently.
_WHOLE_FROM = 1e16
_MOST_RESULTS = 2**31
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")


def _has_short_whole_numbers(body: bytes) -> bool:
    """Whether nothing looks like a number with sixteen digits, a fraction or an exponent."""
    shape = body.translate(_DIGITS_ALIKE)
    return not (b"0e" in shape or b"0.0" in shape or b"0000000000000000" in shape)


def _mended(told: Any) -> Any:
    if isinstance(told, str):
        return _UNSTORABLE.sub("\ufffd", told)
    if isinstance(told, list):
        return [_mended(one) for one in told]
    if isinstance(told, dict):
        return {_mended(name): _mended(value) for name, value in told.items()}
    return told


def _number(text: str) -> float | int:
    """A number that means the same after PostgreSQL has kept it."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    if abs(number) >= _WHOLE_FROM:
        return int(Decimal(repr(number)))
    # There is no negative zero there.
    return number + 0.0


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _texts(told: Any) -> dict[str, str]:
    """An object of texts; PHP writes an empty one as a list, and errors may be a list of texts."""
    if isinstance(told, dict):
        return {str(name): _text(value) for name, value in told.items()}
    if isinstance(told, list):
        return {str(number): _text(value) for number, value in enumerate(told)}
    return {"0": _text(told)} if told else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Any, otherwise: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return otherwise
    return value if abs(value) < _MOST_RESULTS else otherwise
