"""The texts of the pages in both languages, and which of the two a reader gets."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal, get_args

from starlette.requests import Request

Language = Literal["en", "tr"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
COOKIE = "hasat_lang"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LONGEST_TOLD = 1000


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
        if self.language == "en":
            return text
        return _turkish(text) if len(text) <= _LONGEST_TOLD else None

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
# Blanks of told.toml that hold a figure, and what one looks like; the others hold any text.
_FIGURES = frozenset(
    (
        "byte",
        "count",
        "current",
        "free",
        "hours",
        "km2",
        "limit",
        "seconds",
        "share",
        "time",
        "value",
    )
)
_FIGURE = r"[\d,]+(?:\.\d+)?(?:%| s| min| h)?"
_UNITS = {"s": "unit.second", "min": "unit.minute", "h": "unit.hour"}


@cache
def _sentences() -> Sequence[tuple[re.Pattern[str], str]]:
    """The sentences of told.toml: what the English one looks like, and the Turkish one."""
    found = []
    for name, (english, turkish) in texts().items():
        if name.startswith("told."):
            form = re.sub(r"\\{(\w+)\\}", _blank, re.escape(english))
            found.append((re.compile(form, re.DOTALL), turkish))
    return found


def _blank(found: re.Match[str]) -> str:
    return f"(?P<{found[1]}>{_FIGURE if found[1] in _FIGURES else '.+?'})"


def _filled(name: str, value: str) -> str:
    """What stands in a sentence: another, a state, a figure with its unit, or a name as it is."""
    if name == "state" and f"how.{value}" in texts():
        return texts()[f"how.{value}"][1]
    if name not in _FIGURES:
        return _turkish(value) or value
    number, _, unit = value.translate(_TURKISH).replace("%", " %").partition(" ")
    if unit == "%":
        return f"%{number}"
    return f"{number} {texts()[_UNITS[unit]][1]}" if unit else number


@lru_cache(maxsize=2000)
def _turkish(text: str) -> str | None:
    # First what happened, then what to do: each is a sentence of its own; notes are lists.
    for end in re.finditer(r"(?<=[.?]) |[,;] ", text):
        parts = _turkish(text[: end.start()]), _turkish(text[end.end() :])
        if None not in parts:
            return end.group().join(part for part in parts if part)
    for form, turkish in _sentences():
        if fits := form.fullmatch(text):
            return turkish.format_map({k: _filled(k, v) for k, v in fits.groupdict().items()})
    return None


def language_of(request: Request) -> Language:
    """What the address says, else what was chosen before, else what the browser prefers."""
    for given in (request.query_params.get("lang"), request.cookies.get(COOKIE)):
        if given in LANGUAGES:
            return given
    return _preferred(request.headers.get("accept-language", ""))


def _preferred(header: str) -> Language:
    ranked: list[tuple[float, Language]] = []
    for part in header.split(","):
        tag, _, weight = part.strip().partition(";q=")
        short = tag.split("-")[0].lower()
        if short in LANGUAGES:
            try:
                ranked.append((float(weight or 1), short))
            except ValueError:
                continue
    best = max(ranked, key=lambda one: one[0], default=None)
    return best[1] if best and best[0] > 0 else "en"
