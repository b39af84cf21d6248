"""The texts of the pages in both languages, and which of the two a reader gets."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request

from hasat.messages import LANGUAGES, Language, is_translated, preferred_language, translate

COOKIE = "hasat_lang"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@cache
def texts() -> Mapping[str, tuple[str, str]]:
    """Every text by its name (`runs.title`), English first, from all files of the folder texts."""
    found: dict[str, tuple[str, str]] = {}
    for file in sorted((files("hasat.web") / "texts").iterdir(), key=lambda one: one.name):
        found |= dict(_named("", tomllib.loads(file.read_text("utf-8"))))
    return found


def _named(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _named(f"{prefix}{name}.", value)
        else:
            english, turkish = value
            yield f"{prefix}{name}", (english, turkish)


@dataclass(frozen=True)
class Words:
    """The texts of one language, and how it writes numbers."""

    language: Language

    def __call__(self, name: str, **values: object) -> str:
        text = texts()[name][LANGUAGES.index(self.language)]
        return text.format(**values) if values else text

    def maybe(self, name: str, otherwise: str) -> str:
        """A text for something that a source of another package may have named."""
        return self(name) if name in texts() else otherwise

    def told(self, text: str) -> str | None:
        """What the program said, in this language; None if it is known in English only."""
        if not is_translated(text, self.language):
            return None
        return translate(text, self.language)

    def number(self, value: float | None, digits: int = 0) -> str:
        """With separators of the language; a dash for what is not known."""
        if value is None:
            return "–"
        written = f"{value:,.{digits}f}"
        return written.translate(_TURKISH) if self.language == "tr" else written

    def percent(self, value: float, digits: int = 0) -> str:
        written = self.number(value, digits)
        return f"%{written}" if self.language == "tr" else f"{written} %"

    def span(self, seconds: float | None) -> str:
        """A length of time in its two largest units."""
        if seconds is None:
            return "–"
        whole = round(seconds)
        if whole < _MINUTE:
            return f"{self.number(seconds, 1 if seconds < 10 else 0)} {self('unit.second')}"
        if whole < _HOUR:
            return self._pair(whole, _MINUTE, "minute", 1, "second")
        if whole < _DAY:
            return self._pair(whole, _HOUR, "hour", _MINUTE, "minute")
        return self._pair(whole, _DAY, "day", _HOUR, "hour")

    def _pair(self, seconds: int, large: int, name: str, small: int, rest_name: str) -> str:
        whole, rest = divmod(seconds, large)
        told = f"{whole} {self(f'unit.{name}')}"
        return f"{told} {rest // small} {self(f'unit.{rest_name}')}" if rest >= small else told


_TURKISH = str.maketrans(",.", ".,")


def language_of(request: Request) -> Language:
    """What the address says, else what was chosen before, else what the browser prefers."""
    for given in (request.query_params.get("lang"), request.cookies.get(COOKIE)):
        if given in LANGUAGES:
            return given
    return preferred_language(request.headers.get("accept-language", ""))
