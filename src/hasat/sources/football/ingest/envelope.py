"""The envelope around every response of API-Football, and the JSON parser for it."""

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
    """One response: the request it answers, errors, paging and rows."""

    get: str
    parameters: Mapping[str, str]
    errors: Mapping[str, str]
    results: int
    page: int
    pages: int
    response: Any
    document: Any = None
    """The whole document, as stored in raw.api_responses."""
    repaired: bool = False
    """Whether U+FFFD replaces something that PostgreSQL cannot store."""
    integers_only: bool = False
    """Whether every number is a short integer, which all JSON encoders write alike."""

    @property
    def is_partial(self) -> bool:
        """Whether rows are missing: on other pages, or counted but not sent."""
        rows = self.response
        return self.pages > 1 or (isinstance(rows, list) and len(rows) < self.results)

    @property
    def row_count(self) -> int:
        """The number of rows that the API counts, which may be more than it sent."""
        return max(self.results, len(self.response) if isinstance(self.response, list) else 0)


class Parsed(NamedTuple):
    """A JSON document in values that PostgreSQL can store."""

    document: Any
    integers_only: bool
    repaired: bool


def read_envelope(body: bytes | str, parsed: Parsed | None = None) -> Envelope:
    """Read the envelope of a response; an empty list and an empty object mean the same.

    `parsed` is the result of `parse` for the same body, if there is one already.
    """
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    try:
        document, integers_only, repaired = parsed or parse(body)
    except ValueError as error:
        raise BrokenAnswerError(msg("The response is not JSON.")) from error
    if not is_envelope(document):
        raise BrokenAnswerError(
            msg("The response is not an envelope: `response` or `errors` is missing.")
        )
    paging = document.get("paging")
    paging = paging if isinstance(paging, dict) else {}
    return Envelope(
        str(document.get("get", "")).strip("/"),
        _texts(document.get("parameters")),
        _texts(document["errors"]),
        _count(document.get("results"), 0),
        # Older responses of the top lists count pages from 0.
        max(1, _count(paging.get("current"), 1)),
        max(1, _count(paging.get("total"), 1)),
        document["response"],
        document,
        repaired,
        integers_only,
    )


def parse(body: bytes) -> Parsed:
    """Parse a JSON document, or raise ValueError.

    One bad value must not cost the rest of the document, so U+FFFD replaces bytes that are not
    text, characters and numbers that PostgreSQL cannot store, and values nested too deeply.
    """
    is_deep = _is_deep(body)
    if _has_short_integers_only(body) and not is_deep:
        # orjson is stricter about encodings: the slower parser reads what it refuses.
        with suppress(orjson.JSONDecodeError):
            document = orjson.loads(body)
            storable = document if _SUSPECT.search(body) is None else _replace_unstorable(document)
            return Parsed(storable, integers_only=True, repaired=storable != document)
    encoding = json.detect_encoding(body)
    try:
        text, repaired = body.decode(encoding), False
    except UnicodeDecodeError:
        text, repaired = body.decode(encoding, "replace"), True
    if is_deep:
        shallow = _replace_deep(text)
        text, repaired = shallow, repaired or shallow != text
    numbers = _Numbers()
    try:
        document = json.loads(
            text,
            strict=False,
            parse_float=numbers.fraction,
            parse_constant=numbers.unstorable,
            # The default integer parser is several times faster.
            parse_int=numbers.integer if _LONG_NUMBER.search(text) else None,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    storable = document if _SUSPECT_TEXT.search(text) is None else _replace_unstorable(document)
    repaired = repaired or numbers.repaired or storable != document
    return Parsed(storable, integers_only=False, repaired=repaired)


def is_envelope(document: Any) -> bool:
    return isinstance(document, dict) and "response" in document and "errors" in document


def encode(body: Any, *, integers_only: bool = False) -> bytes:
    """Return the canonical encoding of what `read_envelope` read, faster than `canonical`."""
    try:
        quick = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return canonical(body)
    # Of the numbers that `parse` returns, orjson writes only very small ones differently.
    if not integers_only and (b"e-" in quick or b"0.0000" in quick):
        return canonical(body)
    return quick


_REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SUSPECT = re.compile(rb"\\u(?:0000|d[89a-f])", re.IGNORECASE)
_SUSPECT_TEXT = re.compile(r"\x00|\\u(?:0000|d[89a-f])", re.IGNORECASE)
# Python refuses to read integers with more digits than these.
_LONG_NUMBER = re.compile(r"[0-9]{4000}")
# Responses are nested about ten deep. Several serializers stop at a few hundred.
_MAX_DEPTH = 64
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STRINGS_AND_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
# From here on Python and PostgreSQL write the same float differently.
_INTEGER_FROM = 1e16
_MAX_RESULTS = 2**31
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")


def _has_short_integers_only(body: bytes) -> bool:
    """Whether no number has sixteen digits, a fraction or an exponent."""
    shape = body.translate(_DIGITS_ALIKE)
    return not (b"0e" in shape or b"0.0" in shape or b"0000000000000000" in shape)


def _replace_unstorable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_replace_unstorable(item) for item in value]
    if isinstance(value, dict):
        return {
            _replace_unstorable(name): _replace_unstorable(item) for name, item in value.items()
        }
    return value


class _Numbers:
    """Parse numbers into values that PostgreSQL stores unchanged."""

    def __init__(self) -> None:
        self.repaired = False

    def fraction(self, text: str) -> float | int | str:
        number = float(text)
        if math.isinf(number):
            return self.unstorable(text)
        if abs(number) >= _INTEGER_FROM:
            return int(Decimal(repr(number)))
        # PostgreSQL has no negative zero.
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
    """Whether a document may be nested too deeply; brackets inside strings count as well."""
    brackets = body.translate(None, _NOT_BRACKETS)
    for _ in range(_MAX_DEPTH):
        if not brackets:
            return False
        before = len(brackets)
        # Each pass removes the innermost level.
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == before:
            return True
    return bool(brackets)


def _replace_deep(text: str) -> str:
    """Replace every list and object that is nested too deeply."""
    pieces: list[str] = []
    depth = end = 0
    for token in _STRINGS_AND_BRACKETS.finditer(text):
        if token[0] in "[{":
            if depth == _MAX_DEPTH:
                pieces.append(text[end : token.start()])
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == _MAX_DEPTH:
                pieces.append(f'"{_REPLACEMENT}"')
                end = token.end()
    # A value that is never closed is invalid JSON either way.
    return "".join([*pieces, text[end:]]) if depth <= _MAX_DEPTH else text


def _texts(value: Any) -> dict[str, str]:
    """Read an object of strings.

    PHP writes an empty object as a list, and errors may be a list of strings.
    """
    if isinstance(value, dict):
        return {str(name): _text(item) for name, item in value.items()}
    if isinstance(value, list):
        return {str(number): _text(item) for number, item in enumerate(value)}
    return {"0": _text(value)} if value else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Any, default: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return value if abs(value) < _MAX_RESULTS else default
