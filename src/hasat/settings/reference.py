"""Settings as people see them: the reference and the current values, with secrets masked."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import SecretStr

from hasat.settings.aliases import legacy_names, legacy_shape
from hasat.settings.legacy import JOB, JOB_FILES, Inert, Shape
from hasat.settings.plugins import load_plugins
from hasat.settings.tree import SCHEDULE, Leaf, Settings, leaves, plain_type, sections
from hasat.settings.types import Description, Section, format_duration
from hasat.text import HIDDEN, mask_address

_INTRODUCTION = """\
# Settings

<!-- Written by `hasat config reference > docs/reference/settings.md`. -->

A setting has a dotted key, such as `serve.port`. Its value is taken from the first of these that
has one:

1. **flags**: `--set serve.port=9000`, and the flags of single commands;
2. **the environment**: `HASAT_SERVE_PORT=9000`, or one of the other names below (where several are
   set, the one named first counts); an empty variable counts as not set;
3. **files**: the YAML files of the folder `HASAT_CONFIG`, else of `config/` in `HASAT_HOME`, else
   of `./config`; `null` and empty texts count as not set;
4. **the default**.

`hasat config show --origin` says where each value came from, `hasat config check` whether all is
well. Unknown settings are errors, so that typing mistakes are noticed.

- **Secrets** never come from flags and are never shown. For each of their variables there is a
  second one ending in `_FILE` that names a file with the value, e.g.
  `HASAT_DATABASE_URL_FILE=/run/secrets/database`.
- **Durations** are seconds (`600`), amounts (`10m`, `1h30m`, `200ms`) or `hh:mm:ss` (`00:10:00`).
- **Lists** in flags and variables are separated by commas; structures are JSON.
- **Relative paths** in a file start in that file's folder, in flags and variables where Hasat is
  started, in defaults in `home`.
- Names with `__` are compared without regard to case, and `:` may stand for `__`. A name ending in
  `*` stands for several variables: `POSTGRES_HOST`, `_PORT`, `_USER`, `_PASSWORD` and `_DB`;
  `Authentication__Clients__0__AccessKey`, `__SecretKey` and `__Name`, and so on by number.

## Files

| file | what it holds |
|---|---|
| `hasat.yaml` | any section, by its name |
"""

_AFTER_FILES = """
The same setting in two files is an error unless both say the same. `hasat.yaml`, and the files of
sections with names that contain `__`, also understand the sections of `appsettings.json` of the
.NET service (`ArchiveStorage`, ...). Examples of all files are in `deploy/config.example/`.

An entry in `jobs` has `job_id`, `enabled`, `interval: {type: cron, cron: "0 6 * * *"}`, `params`
and `mode`; in `hasat.yaml` the same is `jobs.schedule.JOB.enabled`, `.cron`, `.params` and `.mode`.
"""


def reference() -> str:
    """Return the reference page as Markdown."""
    return "\n".join(_lines()) + "\n"


def allowed(leaf: Leaf) -> str:
    """Return a description of the values that a setting accepts."""
    return _allowed(leaf.field.annotation, leaf.field.metadata)


def describe_type(annotation: Any) -> str:
    """Return a description of the values of a type."""
    kind = plain_type(annotation)
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    return _allowed(annotation, []) or "a text"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    yield from _files()
    yield _AFTER_FILES
    yield "## Where Hasat is"
    yield from _table([leaf for key, leaf in leaves().items() if "." not in key])
    for key, model in sections().items():
        yield ""
        yield f"{'#' * (2 + key.count('.'))} `{key}`"
        yield ""
        yield str(model.__doc__)
        own = [leaf for name, leaf in leaves().items() if name.rpartition(".")[0] == key]
        yield from _table(own)
    yield from _without_effect()


def _files() -> Iterator[str]:
    own = sorted([*(name for name, _ in load_plugins().sections()), "webhooks"])
    named = ", ".join(f"`{name}.yaml`" for name in own)
    yield f"| {named} | the section of that name, its keys at the top |"
    descriptions: dict[str, list[str]] = {}
    for file in legacy_names().files:
        descriptions.setdefault(file.name, []).append(file.description)
    for name, parts in descriptions.items():
        yield f"| `{name}` | {', '.join(parts)} |"


def _table(rows: list[Leaf]) -> Iterator[str]:
    yield ""
    yield "| setting | default | allowed | environment | meaning |"
    yield "|---|---|---|---|---|"
    for leaf in rows:
        names = "<br>".join(f"`{name}`" for name in leaf.names)
        cells = (f"`{leaf.key}`", _default(leaf), allowed(leaf), names, leaf.field.description)
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _default(leaf: Leaf) -> str:
    if leaf.key == "home":
        return "the user's data folder; `/var/lib/hasat` for root"
    if leaf.key == "config":
        return "`config` in home, else `./config`"
    default = as_text(plain(leaf.field.default))
    return "" if default == "-" else f"`{default}`"


def _allowed(annotation: Any, metadata: list[Any]) -> str:
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = [*inner, *metadata]
    kind = plain_type(annotation)
    for part in get_args(annotation):
        if get_origin(part) is Annotated and plain_type(part) == kind:
            return _allowed(part, metadata)
    for note in metadata:
        if isinstance(note, Description):
            return note.text
    if get_origin(kind) is tuple:
        item = _allowed(get_args(kind)[0], [])
        return f"a list: {item}" if item else "a list"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    return _range(kind, metadata) if kind in (int, float) else ""


def _range(kind: type, metadata: list[Any]) -> str:
    flat = [one for note in metadata for one in getattr(note, "metadata", [note])]
    limits = {
        "from": next((note.ge for note in flat if isinstance(note, annotated_types.Ge)), None),
        "above": next((note.gt for note in flat if isinstance(note, annotated_types.Gt)), None),
        "to": next((note.le for note in flat if isinstance(note, annotated_types.Le)), None),
    }
    number = "a whole number" if kind is int else "a number"
    words = [f"{word} {limit}" for word, limit in limits.items() if limit is not None]
    return " ".join([number, *words])


def _without_effect() -> Iterator[str]:
    yield ""
    yield "## Known, without effect"
    yield ""
    yield "Names of the systems that Hasat takes over from. They are no errors; `hasat doctor`"
    yield "mentions the variables and files among them that it finds."
    yield ""
    yield "| name | why |"
    yield "|---|---|"
    names = legacy_names()
    for name, because in {**names.retired, **names.retired_files}.items():
        yield f"| `{name}` | {because} |"
    for file in dict.fromkeys(file.name for file in names.files):
        for path, because in _inert(legacy_shape(file)):
            yield f"| `{path}` in `{file}` | {because} |"
    for path, because in _inert(JOB):
        yield f"| `jobs[].{path}` in `{JOB_FILES}` | {because} |"
    yield ""
    yield "## Files that may be elsewhere"
    yield ""
    yield "| variable | instead of |"
    yield "|---|---|"
    for name, file in names.file_variables.items():
        yield f"| `{name}` | `{file}` |"


def _inert(shape: Shape, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, target in shape.items():
        if isinstance(target, Inert):
            yield prefix + name, target.because
        elif isinstance(target, Mapping):
            yield from _inert(target, f"{prefix}{name}.")


def shown_values(settings: Settings) -> dict[str, Any]:
    """Return every setting by its dotted key as JSON values, with secrets masked."""
    values: dict[str, Any] = {}
    for key in leaves():
        value: Any = settings
        for name in key.split("."):
            value = getattr(value, name)
        if key == SCHEDULE:
            for job, override in value.items():
                for name, part in plain(override).items():
                    if f"{key}.{job}.{name}" in settings.origins:
                        values[f"{key}.{job}.{name}"] = part
        else:
            values[key] = plain(value)
    return values


def plain(value: Any) -> Any:
    """Return a value as JSON that can be set again; secrets are masked."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Section):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and "://" in value:
        return mask_address(value)
    return str(value) if isinstance(value, Path) else value


def as_text(value: Any) -> str:
    """Return a plain value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "-"
    if isinstance(value, dict | list):
        import json

        return json.dumps(value, ensure_ascii=False) if value else "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
