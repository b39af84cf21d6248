"""The envelope around every answer of API-Football."""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from hasat.errors import BrokenAnswerError
from hasat.feed.encoding import canonical
from hasat.messages import msg


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
    repaired: bool = False
    """Whether it held something that PostgreSQL cannot store; U+FFFD replaces it."""
    integers_only: bool = False
    """Whether every number in it is a short whole one, which everybody spells alike."""

    @property
    def is_partial(self) -> bool:
        """Whether rows are missing: other pages have them, or it has fewer than it counts."""
        rows = self.response
        return self.pages > 1 or (isinstance(rows, list) and len(rows) < self.results)

    @property
    def row_count(self) -> int:
        """How many rows there are as the API counts them, which may be more than it sent."""
        return max(self.results, len(self.response) if isinstance(self.response, list) else 0)

    @property
    def is_empty(self) -> bool:
        """Whether it is a definitive "nothing here"."""
        return not self.errors and not self.response


def read_envelope(body: bytes | str) -> Envelope:
    """The envelope in an answer; lists and objects stand for one another where they are empty."""
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    try:
        told, integers_only, repaired = parse(body)
    except ValueError as error:
        raise BrokenAnswerError(msg("The answer is not JSON.")) from error
    if not is_envelope(told):
        raise BrokenAnswerError(
            msg("The answer is not an envelope: response or errors is missing.")
        )
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
        repaired,
        integers_only,
    )


class Parsed(NamedTuple):
    """The content of a JSON document, in values that PostgreSQL can store."""

    content: Any
    integers_only: bool
    """Whether every number in it is a short whole one."""
    repaired: bool
    """Whether U+FFFD replaces something that cannot be stored."""


def parse(body: bytes) -> Parsed:
    """Parse a JSON document; ValueError if it is none.

    One bad value must not cost the rest of the document. So U+FFFD replaces bytes that are not
    text, characters and numbers that PostgreSQL does not have, and what is nested too deeply.
    """
    is_deep = _is_deep(body)
    if _has_short_whole_numbers(body) and not is_deep:
        # It is stricter about what is text.
        with suppress(orjson.JSONDecodeError):
            content = orjson.loads(body)
            storable = content if _SUSPECT.search(body) is None else _replace_unstorable(content)
            return Parsed(storable, integers_only=True, repaired=storable != content)
    encoding = json.detect_encoding(body)
    try:
        text, repaired = body.decode(encoding), False
    except UnicodeDecodeError:
        text, repaired = body.decode(encoding, "replace"), True
    if is_deep:
        shallow = _without_depths(text)
        text, repaired = shallow, repaired or shallow != text
    numbers = _Numbers()
    try:
        content = json.loads(
            text,
            strict=False,
            parse_float=numbers.fraction,
            parse_constant=numbers.unstorable,
            # The default is several times faster.
            parse_int=numbers.integer if _LONG_NUMBER.search(text) else None,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    storable = content if _SUSPECT_TEXT.search(text) is None else _replace_unstorable(content)
    repaired = repaired or numbers.repaired or storable != content
    return Parsed(storable, integers_only=False, repaired=repaired)


def is_envelope(told: Any) -> bool:
    return isinstance(told, dict) and "response" in told and "errors" in told


def encode(body: Any, *, integers_only: bool = False) -> bytes:
    """The canonical spelling of what `read_envelope` read: what `canonical` says, sooner."""
    try:
        quick = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return canonical(body)
    # Of the numbers that can be in there, only very small ones have another spelling.
    if not integers_only and (b"e-" in quick or b"0.0000" in quick):
        return canonical(body)
    return quick


_REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SUSPECT = re.compile(rb"\\u(?:0000|d[89a-f])", re.IGNORECASE)
_SUSPECT_TEXT = re.compile(r"\x00|\\u(?:0000|d[89a-f])", re.IGNORECASE)
# Python refuses to read whole numbers with more digits than these.
_LONG_NUMBER = re.compile(r"[0-9]{4000}")
# Answers are nested about ten deep. Several serializers stop at a few hundred.
_MAX_DEPTH = 64
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STRINGS_AND_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
# From here on Python and PostgreSQL would spell the same number differently.
_WHOLE_FROM = 1e16
_MAX_RESULTS = 2**31
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")


def _has_short_whole_numbers(body: bytes) -> bool:
    """Whether nothing looks like a number with sixteen digits, a fraction or an exponent."""
    shape = body.translate(_DIGITS_ALIKE)
    return not (b"0e" in shape or b"0.0" in shape or b"0000000000000000" in shape)


def _replace_unstorable(told: Any) -> Any:
    if isinstance(told, str):
        return _UNSTORABLE.sub(_REPLACEMENT, told)
    if isinstance(told, list):
        return [_replace_unstorable(one) for one in told]
    if isinstance(told, dict):
        return {
            _replace_unstorable(name): _replace_unstorable(value) for name, value in told.items()
        }
    return told


class _Numbers:
    """Numbers that mean the same after PostgreSQL has stored them."""

    def __init__(self) -> None:
        self.repaired = False

    def fraction(self, text: str) -> float | int | str:
        number = float(text)
        if math.isinf(number):
            return self.unstorable(text)
        if abs(number) >= _WHOLE_FROM:
            return int(Decimal(repr(number)))
        # There is no negative zero there.
        return number + 0.0

    def integer(self, text: str) -> int | str:
        try:
            return int(text)
        except ValueError:
            return self.unstorable(text)

    def unstorable(self, _: str) -> str:
        self.repaired = True
        return _REPLACEMENT


def _is_deep(body: bytes) -> bool:
    """Whether it may be nested too deeply; brackets inside of texts count as well."""
    brackets = body.translate(None, _NOT_BRACKETS)
    for _ in range(_MAX_DEPTH):
        if not brackets:
            return False
        before = len(brackets)
        # Each pass takes the innermost level away.
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == before:
            return True
    return bool(brackets)


def _without_depths(text: str) -> str:
    """Replace every list and object that is nested too deeply."""
    kept: list[str] = []
    depth = end = 0
    for token in _STRINGS_AND_BRACKETS.finditer(text):
        if token[0] in "[{":
            if depth == _MAX_DEPTH:
                kept.append(text[end : token.start()])
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == _MAX_DEPTH:
                kept.append(f'"{_REPLACEMENT}"')
                end = token.end()
    # What never ends is no JSON either way.
    return "".join([*kept, text[end:]]) if depth <= _MAX_DEPTH else text


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
    return value if abs(value) < _MAX_RESULTS else otherwise
