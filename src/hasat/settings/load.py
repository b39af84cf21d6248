"""Load settings: flags over environment over files over defaults; report every problem at once."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings.aliases import legacy_names
from hasat.settings.environment import environment_layer
from hasat.settings.files import files_layer
from hasat.settings.plugins import load_plugins
from hasat.settings.tree import (
    SCHEDULE,
    Settings,
    leaf_of,
    leaves,
    nested,
    parse_value,
    plain_type,
    settings_model,
)
from hasat.settings.types import Section
from hasat.settings.values import (
    DEFAULT,
    Findings,
    Given,
    Origin,
    absolute,
    default_home,
    did_you_mean,
    is_folder,
)
from hasat.text import HIDDEN, mask_address

NO_FLAGS: Mapping[str, str] = MappingProxyType({})


def load_settings(
    flags: Mapping[str, str] = NO_FLAGS,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Settings:
    """Return the settings of this process; raise one SettingsError with every problem.

    Flags are texts by dotted key, such as ``{"serve.port": "9000"}``.
    """
    found = Findings()
    cwd = cwd or Path.cwd()
    from_flags = _flags_layer(flags, cwd, found)
    places = _folders(from_flags, environ, cwd, found)
    home, config = (places[key].value for key in ("home", "config"))
    from_files, files = files_layer(config, environ, cwd, found)
    named: dict[str, str] = {}
    for key, naming in legacy_names().variable_names.items():
        given_name = (
            from_flags.get(naming)
            or _from_variable(leaves()[naming].names[0], environ, cwd)
            or from_files.get(naming)
        )
        if given_name:
            named[key] = str(given_name.value)
    from_environment = environment_layer(environ, named, cwd, found)
    defaults = {
        key: Given(leaf.field.default, DEFAULT, home)
        for key, leaf in leaves().items()
        if leaf.path and leaf.field.default is not None
    }
    given = {**defaults, **from_files, **from_environment, **from_flags, **places}
    settings = _validate(given, found)
    if settings is None or found.problems:
        raise SettingsError(
            str(found), remedy=msg("`hasat config reference` describes every setting.")
        )
    origins = dict.fromkeys(leaves(), DEFAULT)
    del origins[SCHEDULE]
    settings._origins = MappingProxyType(origins | {k: v.origin for k, v in given.items()})
    sections = (getattr(settings, name) for name in type(settings).model_fields)
    found.remarks += [
        remark for one in sections if isinstance(one, Section) for remark in one.without_effect()
    ]
    settings._files, settings._remarks = files, tuple(found.remarks)
    return settings


def _flags_layer(flags: Mapping[str, str], cwd: Path, found: Findings) -> dict[str, Given]:
    values: dict[str, Given] = {}
    for key, text in flags.items():
        leaf = leaf_of(key)
        if leaf is None:
            meant = did_you_mean(key, leaves())
            found.problems.append(f"{key} (flag): there is no such setting{meant}")
        elif leaf.secret:
            found.problems.append(
                f"{key} is a secret, and flags are visible to all users of this machine; "
                f"set {leaf.names[0]} or {leaf.names[0]}_FILE instead."
            )
        else:
            values |= parse_value(leaf, Given(text, Origin("flag", key), cwd), found)
    return values


def _from_variable(name: str, environ: Mapping[str, str], cwd: Path) -> Given | None:
    text = environ.get(name, "").strip()
    return Given(text, Origin("environment", name), cwd) if text else None


def _folders(
    flags: Mapping[str, Given], environ: Mapping[str, str], cwd: Path, found: Findings
) -> dict[str, Given]:
    """Return the home and configuration folders, which only flags and environment can set."""

    def configured(key: str) -> Given | None:
        given = flags.get(key) or _from_variable(f"HASAT_{key.upper()}", environ, cwd)
        return given and replace(given, value=absolute(given.value, cwd))

    home = configured("home") or Given(default_home(), DEFAULT, cwd)
    config = configured("config")
    if config is None:
        usual = (home.value / "config", cwd / "config")
        config = Given(next(filter(is_folder, usual), None), DEFAULT, cwd)
    elif not is_folder(config.value):
        found.problems.append(
            f"config: {config.value} ({config.origin}) is not a folder that can be read."
        )
        config = replace(config, value=None)
    return {"home": home, "config": config}


def _validate(given: Mapping[str, Given], found: Findings) -> Settings | None:
    try:
        values = nested({k: _resolve_path(k, v) for k, v in given.items()})
        settings = settings_model().model_validate(values)
    except ValidationError as error:
        found.problems.extend(describe_problems(error, given))
        return None
    _check_sources(settings, given, found)
    return settings


def _check_sources(settings: Settings, given: Mapping[str, Given], found: Findings) -> None:
    """Report names in `sources` that are not installed."""
    plugins = load_plugins()
    installed = [source.name for source in plugins.sources]
    broken = {source.name for source in plugins.broken}
    for name in settings.sources:
        if name not in installed and name not in broken:
            place, meant = given["sources"].where(), did_you_mean(name, installed)
            found.problems.append(f"sources ({place}): no source is named {name!r}{meant}")


def _resolve_path(key: str, given: Given) -> Any:
    """Resolve a relative path against the file's folder or the working directory."""
    leaf = leaf_of(key)
    if leaf and leaf.path and isinstance(given.value, str | Path):
        return absolute(given.value, given.base)
    return given.value


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
    "mapping_type": "must contain keys and values",
    "dict_type": "must contain keys and values",
    "model_type": "must contain keys and values",
    "missing": "is missing",
}
_LIMITS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}

_MAX_SHOWN = 200


def describe_problems(error: ValidationError, given: Mapping[str, Given]) -> Iterator[str]:
    """Return one sentence per problem."""
    for details in error.errors(include_url=False, include_input=False):
        key, part = _locate(details["loc"])
        source = given.get(key)
        named = key + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in part)
        if source is None:
            # A check of several settings: its message names them.
            yield f"{key}: {_reason(details)}"
        elif details["type"] == "extra_forbidden":
            yield f"{source.where(part)}: there is no {named!r}{_meant(key, str(part[-1]))}"
        else:
            value = _part_of(source.value, part)
            shown = "" if _is_secret(key) or not isinstance(value, str) else f"{_masked(value)!r} "
            yield f"{named}: {shown}({source.where(part)}) {_reason(details)}."


def _locate(loc: tuple[int | str, ...]) -> tuple[str, tuple[int | str, ...]]:
    """Return the setting of an error and the part of its value."""
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


def _masked(text: str) -> str:
    """Return a value without credentials in addresses, cut to a line or two."""
    masked = re.sub(r"//[^/\s]*@", f"//{HIDDEN}@", mask_address(text))
    return masked if len(masked) <= _MAX_SHOWN else f"{masked[:_MAX_SHOWN]}…"


def _is_secret(key: str) -> bool:
    leaf = leaf_of(key)
    return leaf is not None and leaf.secret


def _meant(key: str, name: str) -> str:
    """Suggest a field of the items of a list."""
    leaf = leaf_of(key)
    parts = get_args(plain_type(leaf.field.annotation)) if leaf else ()
    item = plain_type(parts[0]) if parts else None
    if isinstance(item, type) and issubclass(item, Section):
        return did_you_mean(name, list(item.model_fields))
    return "."
