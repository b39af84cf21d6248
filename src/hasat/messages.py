"""Texts for people: an English template with named parameters, translated where they are shown.

    raise NotFoundError(msg("There is no run {run_id}.", run_id=7))

The English template is the key in the catalogue of a language (`locale/tr/LC_MESSAGES/hasat.po`).
A parameter may be a message itself; a number with a format, such as `{count:,}`, and a point in
time are written as the language writes them.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Formatter
from typing import Any, Literal, TypeAlias, get_args

Language = Literal["en", "tr"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
DEFAULT_LANGUAGE: Language = "en"

Param: TypeAlias = "Message | str | int | float | datetime | date | None"

_TEMPLATE, _PARAMS, _TIME, _DATE = "template", "params", "time", "date"


class Message(str):
    """A text in English that keeps its template and parameters, so that it can be translated.

    It is a string, so that logs, JSON and comparisons need not know the difference.
    """

    __slots__ = ("params", "template")

    template: str
    params: Mapping[str, Param]

    def __new__(cls, template: str, params: Mapping[str, Param]) -> "Message":
        message = super().__new__(cls, template.format_map(params))
        message.template = template
        message.params = params
        return message

    def __getnewargs__(self) -> tuple[str, Mapping[str, Param]]:  # type: ignore[override]
        return self.template, self.params

    def to_json(self) -> dict[str, Any]:
        """Return the template and the parameters as JSON can hold them."""
        params = {name: _param_to_json(value) for name, value in self.params.items()}
        return {_TEMPLATE: self.template, _PARAMS: params}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Message":
        """Return the message that `to_json` was called on."""
        params = {name: _param_from_json(value) for name, value in data[_PARAMS].items()}
        return cls(data[_TEMPLATE], params)


def msg(template: str, /, **params: object) -> Message:
    """Make a message; a parameter that is neither text, number nor time becomes text."""
    return Message(template, {name: _param(value) for name, value in params.items()})


def template(text: str, /) -> str:
    """Mark a template whose parameters are filled in elsewhere, such as in a SQL statement."""
    return text


def join(parts: Iterable[str], separator: str = " ") -> Message:
    """Make one message of several, each translated by itself."""
    params = {f"part{number}": part for number, part in enumerate(parts, 1)}
    return Message(separator.join(f"{{{name}}}" for name in params), params)


def translate(text: str, language: Language) -> str:
    """Return a message in a language.

    A text that is no message is translated if it is a template without parameters, and else stays
    as it is.
    """
    if language == DEFAULT_LANGUAGE:
        return str(text)
    if not isinstance(text, Message):
        return catalogue(language).get(text, text)
    template = catalogue(language).get(text.template) or text.template
    return _LocalFormatter(language).vformat(template, (), text.params)


def is_translated(text: str, language: Language) -> bool:
    """Return whether the catalogue of a language covers a text completely."""
    if language == DEFAULT_LANGUAGE:
        return True
    if not isinstance(text, Message):
        return text in catalogue(language)
    inner = [value for value in text.params.values() if isinstance(value, Message)]
    literals = "".join(literal for literal, *_ in Formatter().parse(text.template))
    is_joined = not literals.strip(" ,;:.\n")
    known = is_joined or text.template in catalogue(language)
    return known and all(is_translated(value, language) for value in inner)


def change_text(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to a text, or to every text among a message's parameters."""
    if not isinstance(text, Message):
        return change(text)
    params = {
        name: change_text(value, change) if isinstance(value, str) else value
        for name, value in text.params.items()
    }
    return Message(text.template, params)


def restored(text: str | None, data: Mapping[str, Any] | None) -> str | None:
    """Return a stored text as the message it was, if its template was stored too."""
    return text if data is None else Message.from_json(data)


def stored(text: str | None) -> dict[str, Any] | None:
    """Return the template and parameters of a text to store with it, for `restored`."""
    return text.to_json() if isinstance(text, Message) else None


def add_translations(name: str, folder: Traversable) -> None:
    """Add the catalogues `<language>/LC_MESSAGES/<name>.po` of a folder to those of the platform.

    The platform's own translations come first.
    """
    if _added.get(name) != folder:
        _added[name] = folder
        catalogue.cache_clear()


_added: dict[str, Traversable] = {}


@cache
def catalogue(language: Language) -> Mapping[str, str]:
    """Return the translations of a language by their English templates."""
    found: dict[str, str] = {}
    for name, folder in [*_added.items(), ("hasat", files("hasat") / "locale")]:
        file = folder / language / "LC_MESSAGES" / f"{name}.po"
        if file.is_file():
            found |= _read_catalogue(file, language)
    return found


def _read_catalogue(file: Traversable, language: Language) -> Mapping[str, str]:
    # Babel takes longer to load than most commands need.
    from babel.messages.pofile import read_po

    with file.open("rb") as stream:
        return {
            str(entry.id): str(entry.string)
            for entry in read_po(stream, locale=language)
            if entry.id and entry.string and not entry.fuzzy
        }


class _LocalFormatter(Formatter):
    """Fills a template by the rules of a language."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Message):
            value = translate(value, self._language)
        elif isinstance(value, datetime):
            return format_time(value, self._language)
        elif isinstance(value, date):
            return format_date(value, self._language)
        elif isinstance(value, int | float) and format_spec:
            return format_number(value, format_spec, self._language)
        return str(super().format_field(value, format_spec))


def format_number(value: float, spec: str, language: Language) -> str:
    """Write a number by a Python format such as `,`, `.1f` or `.0%`, with a language's signs."""
    from babel.numbers import format_decimal, format_percent

    kind = spec[-1] if spec[-1].isalpha() or spec[-1] == "%" else "d"
    if kind == "g":
        return format_decimal(float(format(value, spec)), locale=language)
    _, _, digits = spec.rstrip("f%").partition(".")
    places = int(digits) if digits else 6 if kind in "f%" else 0
    pattern = "#,##0" + ("." + "0" * places if places else "")
    if kind == "%":
        return format_percent(value, f"%{pattern}" if language == "tr" else f"{pattern}%", language)
    return format_decimal(value, pattern, locale=language)


def format_time(value: datetime, language: Language, *, seconds: bool = False) -> str:
    """Write a point in time in its own zone, to the minute or to the second."""
    clock = f"{value:%H:%M:%S}" if seconds else f"{value:%H:%M}"
    return f"{format_date(value, language)} {clock}"


def format_date(value: date, language: Language) -> str:
    """Write a day."""
    return f"{value:%d.%m.%Y}" if language == "tr" else f"{value:%Y-%m-%d}"


def preferred_language(header: str) -> Language:
    """Return the language that an Accept-Language header ranks highest."""
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
    return best[1] if best and best[0] > 0 else DEFAULT_LANGUAGE


def language_of_environment(environment: Mapping[str, str]) -> Language:
    """Return the language of a terminal: HASAT_LANG, else that of the locale."""
    for name in ("HASAT_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if given := environment.get(name):
            short = given.replace("-", "_").split("_")[0].split(".")[0].lower()
            return short if short in LANGUAGES else DEFAULT_LANGUAGE
    return DEFAULT_LANGUAGE


def _param(value: object) -> Param:
    if value is None or isinstance(value, str | int | float | datetime | date):
        return value
    text = str(value)
    if isinstance(value, BaseException) and value.args and value.args[0] == text:
        return value.args[0]  # type: ignore[no-any-return]
    return text


def _param_to_json(value: Param) -> Any:
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, datetime):
        return {_TIME: value.isoformat()}
    if isinstance(value, date):
        return {_DATE: value.isoformat()}
    return value


def _param_from_json(value: Any) -> Param:
    match value:
        case {"template": str(), "params": dict()}:
            return Message.from_json(value)
        case {"time": str(text)}:
            return datetime.fromisoformat(text)
        case {"date": str(text)}:
            return date.fromisoformat(text)
        case None | str() | int() | float():
            return value
        case _:
            return str(value)
