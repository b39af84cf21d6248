"""What is wrong with a value, as a sentence that names the setting and the place to change."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hasat.settings.platform_sections import HmacClient
from hasat.settings.source_sections import League
from hasat.settings.tree import SCHEDULE, leaf_of
from hasat.settings.types import Section
from hasat.settings.values import Given, did_you_mean
from hasat.text import HIDDEN, mask_address

_FIXED = {
    "int_parsing": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_type": "is not a whole number",
    "int_parsing_size": "is far too large",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a number",
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "string_type": "is not text",
    "string_too_short": "is empty",
    "tuple_type": "is not a list",
    "mapping_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "model_type": "must hold keys and values",
    "missing": "is missing",
}
_LIMITS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}

_MAX_SHOWN = 200


def sentences(error: ValidationError, given: Mapping[str, Given]) -> Iterator[str]:
    """One sentence for each thing that is wrong."""
    for details in error.errors(include_url=False, include_input=False):
        key, part = _place(details["loc"])
        source = given.get(key)
        named = key + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in part)
        if source is None:
            # A check of several settings together: its own words name them.
            yield f"{key}: {_reason(details)}"
        elif details["type"] == "extra_forbidden":
            yield f"{source.where(part)}: there is no {named!r}{_meant(key, str(part[-1]))}"
        else:
            value = _part_of(source.value, part)
            shown = "" if _is_secret(key) or not isinstance(value, str) else f"{_hidden(value)!r} "
            yield f"{named}: {shown}({source.where(part)}) {_reason(details)}."


def _place(loc: tuple[int | str, ...]) -> tuple[str, tuple[int | str, ...]]:
    """The setting that an error is about, and the part of its value."""
    names = [part for part in loc if isinstance(part, str)]
    if names[:2] == SCHEDULE.split("."):
        return ".".join(names[:4]), loc[4:]
    for end in range(1, len(loc) + 1):
        key = ".".join(str(part) for part in loc[:end])
        if leaf_of(key):
            return key, loc[end:]
    return ".".join(names), ()


def _reason(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        limit = context[name]
        return f"{words} {limit:g}" if isinstance(limit, float) else f"{words} {limit}"
    return _FIXED.get(kind, details["msg"].lower())


def _part_of(value: Any, part: tuple[int | str, ...]) -> Any:
    for step in part:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _hidden(text: str) -> str:
    """A value without the secrets that an address may carry, and not longer than a line or two."""
    masked = re.sub(r"//[^/\s]*@", f"//{HIDDEN}@", mask_address(text))
    return masked if len(masked) <= _MAX_SHOWN else f"{masked[:_MAX_SHOWN]}…"


def _is_secret(key: str) -> bool:
    leaf = leaf_of(key)
    return leaf is not None and leaf.secret


def _meant(key: str, name: str) -> str:
    models: dict[str, type[Section]] = {
        "football.tracked_leagues": League,
        "authentication.clients": HmacClient,
    }
    return did_you_mean(name, list(models[key].model_fields)) if key in models else "."
