"""The reader's language: which one it is, and how it writes texts, numbers, times and durations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo

from starlette.requests import Request

from hasat.clock import system_clock
from hasat.messages import (
    LANGUAGES,
    Language,
    format_date,
    is_translated,
    msg,
    preferred_language,
    template,
    translate,
)
from hasat.web.labels import LABELS

COOKIE = "hasat_lang"

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86400, 604800
_RELATIVE_UNITS = ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"))
_DATE_FORMATS = {"en": "%Y-%m-%d", "tr": "%d.%m.%Y"}
_TURKISH_SEPARATORS = str.maketrans(",.", ".,")


@dataclass(frozen=True)
class Localizer:
    """Writes texts and values in one language; templates know it as `t`."""

    language: Language
    zone: tzinfo = UTC
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: LABELS)

    def __call__(self, text: str, /, **params: object) -> str:
        """Translate an English template of the catalogue and fill in its parameters."""
        return translate(msg(text, **params) if params else text, self.language)

    def label(self, kind: str, value: str, **params: object) -> str:
        """Return the label of a value, or the value itself if it has none."""
        text = self.labels[kind].get(value)
        return value if text is None else self(text, **params)

    def field(self, path: str, *, alone: bool = False) -> str:
        """Return the label of a field of a record: of its path, else of each part of the path.

        `alone` leaves out the parts in front, which the place already shows.
        """
        known = self.labels.get("field", {})
        if path in known:
            return self(known[path])
        parts = path.split(".")[-1:] if alone else path.removeprefix("properties.").split(".")
        return " › ".join(self(known[one]) if one in known else _readable(one) for one in parts)

    def is_translated(self, text: str) -> bool:
        """Whether the catalogue has all of a text: what an upstream sent stays as it is."""
        return is_translated(text, self.language)

    def number(self, value: float | None, digits: int = 0) -> str:
        """Write a number with the separators of the language; a dash if it is unknown."""
        if value is None:
            return "–"
        written = f"{value:,.{digits}f}"
        return written.translate(_TURKISH_SEPARATORS) if self.language == "tr" else written

    def percent(self, value: float, digits: int = 0) -> str:
        """Write a percentage."""
        written = self.number(value, digits)
        return f"%{written}" if self.language == "tr" else f"{written}%"

    def day(self, value: date) -> str:
        """Write a date."""
        return format_date(value, self.language)

    def iso_date(self, text: str | None) -> str:
        """Write the date of an ISO 8601 timestamp; a dash if it is missing."""
        return self.day(date.fromisoformat(text[:10])) if text else "–"

    def time(self, value: datetime | None, form: str | None = None) -> str:
        """Write a local time: without its date if that is today, or in the given form."""
        if value is None:
            return "–"
        local, today = (at.astimezone(self.zone) for at in (value, system_clock()))
        if form is None:
            form = "time" if local.date() == today.date() else "minute"
        day = _DATE_FORMATS[self.language]
        formats = {"time": "%H:%M:%S", "minute": f"{day} %H:%M", "full": f"{day} %H:%M:%S"}
        return local.strftime(formats.get(form, form))

    def exact(self, value: datetime) -> str:
        """Write a local time to the second, with its offset from UTC."""
        local = value.astimezone(self.zone)
        return f"{self.time(value, 'full')} {local.isoformat()[-6:]}"

    def relative(self, value: datetime) -> str:
        """Write how long ago or how soon a time is; its date if that is a week or more."""
        seconds = round((value - system_clock()).total_seconds())
        span = abs(seconds)
        if span < _MINUTE:
            return self(template("soon") if seconds > 0 else template("just now"))
        if span >= _WEEK:
            return self.day(value.astimezone(self.zone).date())
        size, unit = next(one for one in _RELATIVE_UNITS if span >= one[0])
        text = f"{span // size} {self.label('unit', unit)}"
        return self(template("in {span}") if seconds > 0 else template("{span} ago"), span=text)

    def duration(self, seconds: float | None) -> str:
        """Write a duration in its two largest units; a dash if it is unknown."""
        if seconds is None:
            return "–"
        whole = round(seconds)
        if whole < _MINUTE:
            return (
                f"{self.number(seconds, 1 if seconds < 10 else 0)} {self.label('unit', 'second')}"
            )
        if whole < _HOUR:
            return self._units(whole, _MINUTE, "minute", 1, "second")
        if whole < _DAY:
            return self._units(whole, _HOUR, "hour", _MINUTE, "minute")
        return self._units(whole, _DAY, "day", _HOUR, "hour")

    def _units(self, seconds: int, large: int, name: str, small: int, small_name: str) -> str:
        count, rest = divmod(seconds, large)
        text = f"{count} {self.label('unit', name)}"
        return f"{text} {rest // small} {self.label('unit', small_name)}" if rest >= small else text


def _readable(name: str) -> str:
    """Write the name of a field as words: `firstSeen_at` becomes First seen at."""
    words = _WORD_START.sub(" ", name).replace("_", " ").replace("-", " ").split()
    return " ".join(one if one.isupper() else one.lower() for one in words).capitalize() or name


def request_language(request: Request) -> Language:
    """Return the language of the address, else of the cookie, else what the browser prefers."""
    for given in (request.query_params.get("lang"), request.cookies.get(COOKIE)):
        if given in LANGUAGES:
            return given
    return preferred_language(request.headers.get("accept-language", ""))
