"""Flags over environment over files over defaults: one checked tree, or every problem at once."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings.environment import environment_layer
from hasat.settings.files import files_layer
from hasat.settings.sentences import sentences
from hasat.settings.structure import nested, spread
from hasat.settings.tree import SCHEDULE, Settings, leaf_of, leaves
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

NO_FLAGS: Mapping[str, str] = MappingProxyType({})


def load_settings(
    flags: Mapping[str, str] = NO_FLAGS,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Settings:
    """The settings of this process; raises one SettingsError that names every problem.

    Flags are texts by dotted key, such as ``{"serve.port": "9000"}``.
    """
    found = Findings()
    cwd = cwd or Path.cwd()
    from_flags = _flags_layer(flags, cwd, found)
    places = _places(from_flags, environ, cwd, found)
    home, config = (places[key].value for key in ("home", "config"))
    from_files, files = files_layer(config, environ, cwd, found)
    named = [
        from_flags.get("football.api_key_env"),
        _said_in("HASAT_FOOTBALL_API_KEY_ENV", environ, cwd),
        from_files.get("football.api_key_env"),
    ]
    key_variable = next((str(given.value) for given in named if given), None)
    from_environment = environment_layer(environ, key_variable, cwd, found)
    defaults = {
        key: Given(leaf.field.default, DEFAULT, home)
        for key, leaf in leaves().items()
        if leaf.path and leaf.field.default is not None
    }
    given = {**defaults, **from_files, **from_environment, **from_flags, **places}
    settings = _checked(given, found)
    if settings is None or found.problems:
        raise SettingsError(
            str(found), remedy=msg("`hasat config reference` describes every setting.")
        )
    origins = dict.fromkeys(leaves(), DEFAULT)
    del origins[SCHEDULE]
    settings._origins = MappingProxyType(origins | {k: v.origin for k, v in given.items()})
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
                f"{key} is a secret, and everybody on this machine can see a flag; "
                f"set {leaf.names[0]} or {leaf.names[0]}_FILE instead."
            )
        else:
            values |= spread(leaf, Given(text, Origin("flag", key), cwd), found)
    return values


def _said_in(name: str, environ: Mapping[str, str], cwd: Path) -> Given | None:
    text = environ.get(name, "").strip()
    return Given(text, Origin("environment", name), cwd) if text else None


def _places(
    flags: Mapping[str, Given], environ: Mapping[str, str], cwd: Path, found: Findings
) -> dict[str, Given]:
    """Where home and the files are; only flags and environment can say so."""

    def said(key: str) -> Given | None:
        given = flags.get(key) or _said_in(f"HASAT_{key.upper()}", environ, cwd)
        return given and replace(given, value=absolute(given.value, cwd))

    home = said("home") or Given(default_home(), DEFAULT, cwd)
    config = said("config")
    if config is None:
        usual = (home.value / "config", cwd / "config")
        config = Given(next(filter(is_folder, usual), None), DEFAULT, cwd)
    elif not is_folder(config.value):
        found.problems.append(
            f"config: {config.value} ({config.origin}) is not a folder that can be read."
        )
        config = replace(config, value=None)
    return {"home": home, "config": config}


def _checked(given: Mapping[str, Given], found: Findings) -> Settings | None:
    try:
        return Settings.model_validate(nested({k: _resolved(k, v) for k, v in given.items()}))
    except ValidationError as error:
        found.problems.extend(sentences(error, given))
        return None


def _resolved(key: str, given: Given) -> Any:
    """A relative path starts where it was written: in the file's folder, or where Hasat runs."""
    leaf = leaf_of(key)
    if leaf and leaf.path and isinstance(given.value, str | Path):
        return absolute(given.value, given.base)
    return given.value
