"""The envelope around every answer of API-Football."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hasat.errors import BrokenAnswerError


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

    @property
    def is_empty(self) -> bool:
        """Whether it is a definitive "nothing here"."""
        return not self.errors and not self.response


def read_envelope(body: bytes) -> Envelope:
    """The envelope in an answer; lists and objects stand for one another where they are empty."""
    try:
        told = json.loads(body)
    except ValueError as error:
        raise BrokenAnswerError("The answer is not JSON.") from error
    if not isinstance(told, dict) or "response" not in told or "errors" not in told:
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
    )


def _texts(told: Any) -> dict[str, str]:
    """An object of texts; PHP writes an empty one as a list, and errors may be a list of texts."""
    if isinstance(told, dict):
        return {str(name): _text(value) for name, value in told.items()}
    if isinstance(told, list):
        return {str(number): _text(value) for number, value in enumerate(told)}
    return {} if told in (None, "") else {"0": _text(told)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
